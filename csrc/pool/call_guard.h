// One call at a time.
#pragma once

#include <atomic>
#include <stdexcept>

namespace srl {

// Marks a pool as used for the length of a call. A call that begins meanwhile, in another thread,
// throws std::invalid_argument.
class CallGuard {
 public:
  explicit CallGuard(std::atomic_flag* in_use) : in_use_(in_use) {
    if (in_use_->test_and_set(std::memory_order_acquire)) {
      throw std::invalid_argument("the pool is being used by another thread; one at a time may");
    }
  }
  ~CallGuard() { in_use_->clear(std::memory_order_release); }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  std::atomic_flag* in_use_;
};

}  // namespace srl
