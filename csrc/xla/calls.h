// Functions that compiled XLA programs call.
#pragma once

#include <span>

namespace srl {

// A handler of XLA's foreign function interface.
struct XlaCall {
  const char* name;
  void* handler;
};

// A pool's calls. Operands: handle and token (xla/pool_calls.h), then
//   reset: uint32 [2], whether there is a seed, and the seed;
//   step: actions.
// Results: the next token, then the arrays of a Batch, in its order.
std::span<const XlaCall> PoolCalls();

// Multi-head attention among the entities of a row, and its derivative, on CPUs. Arrays have any
// number of leading axes; rows are independent of each other. Attribute: heads, int64.
//   srl_attention: queries, keys and values float32 [..., entities, 3 * width], each with the heads
//     in turn; mask bool [..., entities], the entities to look at
//     -> float32 [..., entities, width], and the weights [..., heads, entities, entities];
//   srl_attention_gradient: the same two, the weights, and the derivatives by the result
//     -> the derivatives by queries, keys and values.
std::span<const XlaCall> AttentionCalls();

}  // namespace srl
