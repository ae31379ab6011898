// Sine and cosine that the compiler can compute for several lanes at once.
#pragma once

#include <bit>
#include <cstdint>

namespace srl {

struct SineCosine {
  double sine, cosine;
};

// Within 3e-16 of the true values for |x| < 1e5. The angle is brought to [-pi/4, pi/4] in three
// parts of pi/2 (Cody and Waite, 1980); there the polynomials are those of fdlibm (Sun, 1993).
// Without branches or calls: a loop over it becomes vector instructions.
inline SineCosine SineAndCosine(double x) {
  constexpr double kTwoOverPi = 6.36619772367581382433e-01;
  constexpr double kHalfPiHigh = 1.57079632673412561417e+00;  // 33 bits, so products are exact
  constexpr double kHalfPiMiddle = 6.07710050630396597660e-11;
  constexpr double kHalfPiLow = 2.02226624879595063154e-21;
  constexpr double kToInteger = 0x1.8p52;  // adding it rounds to an integer in the low bits

  const double shifted = x * kTwoOverPi + kToInteger;
  const auto quadrant = std::bit_cast<std::int64_t>(shifted);
  const double turns = shifted - kToInteger;
  const double r = ((x - turns * kHalfPiHigh) - turns * kHalfPiMiddle) - turns * kHalfPiLow;
  const double z = r * r;
  const double sine =
      r + r * z *
              (-1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 +
                                                                z * 1.58969099521155010221e-10)))));
  const double cosine =
      1.0 - 0.5 * z +
      z * z *
          (4.16666666666666019037e-02 +
           z * (-1.38888888888741095749e-03 +
                z * (2.48015872894767294178e-05 +
                     z * (-2.75573143513906633035e-07 +
                          z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
  const bool odd = quadrant & 1;
  const std::int64_t sine_sign = (quadrant & 2) << 62;
  const std::int64_t cosine_sign = ((quadrant + 1) & 2) << 62;
  return {std::bit_cast<double>(std::bit_cast<std::int64_t>(odd ? cosine : sine) ^ sine_sign),
          std::bit_cast<double>(std::bit_cast<std::int64_t>(odd ? sine : cosine) ^ cosine_sign)};
}

}  // namespace srl
