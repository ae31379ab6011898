// Multi-head attention among the few entities of a row, and its derivatives, without XLA.
#pragma once

#include <cstdint>
#include <vector>

namespace srl::attention {

using Index = std::int64_t;

// A row is an independent case of attention.
struct Sizes {
  Index rows, entities, width, heads;

  // Numbers of a row: its queries, keys and values; its outputs; its weights.
  Index inputs() const { return 3 * width * entities; }
  Index outputs() const { return width * entities; }
  Index weights() const { return heads * entities * entities; }
};

// The arrays of a call; those of the gradient are null in the other.
struct Arrays {
  const float* inputs;
  const bool* mask;
  float* outputs;
  float* weights;
  const float* output_gradients;
  float* input_gradients;
};

// Computes rows from `first` up to `last`: outputs and weights or, where arrays of gradients are
// given, these.
using Work = void (*)(const Sizes&, Index first, Index last, const Arrays&);

// The same computation for each kind of vectors that this processor has, the fastest first. The
// bits are the same.
const std::vector<Work>& Works();

}  // namespace srl::attention
