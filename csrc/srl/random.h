// Random numbers whose stream is the same on every platform and is saved with the environment.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "srl/plugin.h"

namespace srl {

// xoshiro256** (see plugin.h), seeded by splitmix64. Not thread-safe. A plain value: copying it
// copies the stream, and its bytes are its whole state.
class Random {
 public:
  explicit Random(std::uint64_t seed = 0) { Seed(seed); }
  explicit Random(const SrlRandom& state) : state_(state) {}

  // The stream as it stands, which goes on from there in another language too.
  SrlRandom& state() { return state_; }

  void Seed(std::uint64_t seed) {
    for (std::uint64_t& word : state_.words) {
      seed += 0x9e3779b97f4a7c15u;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      word = z ^ (z >> 31);
    }
  }

  std::uint64_t Bits() { return srl_random_bits(&state_); }

  // Uniform in [0, 1), 53 bits.
  double Uniform() { return srl_random_uniform(&state_); }
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
  SrlRandom state_;
};

}  // namespace srl
