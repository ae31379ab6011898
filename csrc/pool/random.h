// Random numbers whose stream is the same on every platform and is saved with the environment.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace srl {

// xoshiro256** (Blackman and Vigna, 2018), seeded by splitmix64. Not thread-safe. A plain value:
// copying it copies the stream, and its bytes are its whole state.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) { Seed(seed); }

  void Seed(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15u;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }

  std::uint64_t Bits() {
    const std::uint64_t result = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = Rotate(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), 53 bits.
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1.0p-53; }
  double Uniform(double low, double high) { return low + (high - low) * Uniform(); }

  // Of mean 0 and variance 1, by the transform of Box and Muller (1958). Draws two numbers and
  // keeps neither, so that the stream remains the whole state.
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * Uniform());
  }

  // Uniform in {low, ..., high}, both included; needs low <= high.
  int Integer(int low, int high) {
    const std::uint64_t range =
        static_cast<std::uint64_t>(static_cast<std::int64_t>(high) - low) + 1;
    const std::uint64_t limit = UINT64_MAX - UINT64_MAX % range;  // rejects what would bias
    std::uint64_t bits = Bits();
    while (bits >= limit) bits = Bits();
    return static_cast<int>(low + static_cast<std::int64_t>(bits % range));
  }

  bool Coin(double probability) { return Uniform() < probability; }

 private:
  static std::uint64_t Rotate(std::uint64_t x, int bits) {
    return (x << bits) | (x >> (64 - bits));
  }

  std::uint64_t state_[4] = {};
};

}  // namespace srl
