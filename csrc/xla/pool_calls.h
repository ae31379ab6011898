// A pool's calls from inside compiled XLA programs.
#pragma once

#include <cstdint>
#include <memory>

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

// Lets programs call a synchronous `pool`, until it is closed, which must be before the pool goes.
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

}  // namespace srl
