#include "xla/attention.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/check.h"

namespace srl::attention {
namespace {

std::vector<float> Numbers(Index count, float step) {
  std::vector<float> numbers(count);
  for (Index i = 0; i < count; ++i) numbers[i] = std::sin(step * static_cast<float>(i + 1));
  return numbers;
}

// The outputs, the weights and the derivatives, one after the other.
std::vector<float> Computed(Work work, const Sizes& s) {
  const std::vector<float> inputs = Numbers(s.rows * s.inputs(), 1.f);
  const std::vector<float> gradients = Numbers(s.rows * s.outputs(), 0.7f);
  const Index flags = s.rows * s.entities;
  const auto mask = std::make_unique<bool[]>(flags);
  // Two of three entities, and none at all in the first row.
  for (Index i = s.entities; i < flags; ++i) mask[i] = i % 3 != 0;
  std::vector<float> results(s.rows * (s.outputs() + s.weights() + s.inputs()));
  float* const weights = results.data() + s.rows * s.outputs();
  Arrays arrays{inputs.data(), mask.get(), results.data(), weights, nullptr, nullptr};
  work(s, 0, s.rows, arrays);
  arrays.output_gradients = gradients.data();
  arrays.input_gradients = weights + s.rows * s.weights();
  work(s, 0, s.rows, arrays);
  return results;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

TEST(AttentionHasTheSameBitsWithAllVectors) {
  for (const Sizes& sizes : {Sizes{37, 7, 32, 2}, Sizes{16, 1, 3, 3}, Sizes{5, 18, 20, 4}}) {
    const std::vector<float> expected = Computed(Works().front(), sizes);
    for (Work work : Works()) CHECK(SameBits(Computed(work, sizes), expected));
  }
}

TEST(AttentionAveragesTheValuesOfARowThatIsMasked) {
  const Sizes s{1, 5, 2, 1};
  const std::vector<float> results = Computed(Works().back(), s);
  const std::vector<float> inputs = Numbers(s.inputs(), 1.f);
  float mean = 0;
  for (Index i = 0; i < s.entities; ++i) mean += inputs[i * 3 * s.width + 2 * s.width] / 5.f;
  for (Index i = 0; i < s.entities; ++i) CHECK(std::abs(results[i * s.width] - mean) < 1e-6f);
}

}  // namespace
}  // namespace srl::attention
