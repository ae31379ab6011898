// A pool's calls from inside compiled XLA programs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "pool/pool.h"

namespace srl {

// Each call takes two numbers and gives the second anew. The handle says which pool: a number and
// no pointer, so that a program serves any pool of the kind that it was traced for, and a call
// of one that is closed is an error. The token says which call this is: XLA keeps an order only
// where a value leads from one call to the next, so a call with the token of another call than the
// pool's last is an error. `kAnyToken` begins a new sequence of calls wherever the pool stands: it
// is what a program begins with, and so the same in each of its runs.

constexpr std::uint32_t kAnyToken = 0;

struct CallableState;

// Lets programs call `pool`, as long as it lives. It must outlive the pool, whose threads write
// into its memory, but be closed before the pool goes.
class CallablePool {
 public:
  explicit CallablePool(Pool* pool);
  ~CallablePool();
  CallablePool(const CallablePool&) = delete;
  CallablePool& operator=(const CallablePool&) = delete;

  std::uint32_t handle() const { return handle_; }
  // That of the last call; any thread may ask, also while a program runs.
  std::uint32_t last_token() const;
  // Waits for a call that is at work; later ones are errors.
  void Close();

 private:
  std::uint32_t handle_ = 0;
  std::shared_ptr<CallableState> state_;
};

// A handler of XLA's foreign function interface. Operands: handle and token, then
//   reset, async_reset: uint32 [2], whether there is a seed, and the seed;
//   step: actions; send: actions and env_ids; recv: nothing.
// Results: the next token, then for reset, step and recv the arrays of a Batch, in its order.
struct PoolCall {
  const char* name;
  void* handler;
};

std::span<const PoolCall> PoolCalls();

}  // namespace srl
