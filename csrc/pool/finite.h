// Whether numbers are finite.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace srl {

// Compares bits, which vector units do for many numbers at a time.
inline bool AllFinite(const float* values, std::size_t count) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu;
    bad |= static_cast<std::int32_t>(bits) >= 0x7f800000;
  }
  return bad == 0;
}

inline bool AllFinite(const double* values, std::size_t count) {
  return std::all_of(values, values + count, [](double x) { return std::isfinite(x); });
}

}  // namespace srl
