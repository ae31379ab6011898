// The queue of environments that wait to be stepped.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace srl {

// A bounded queue of environment ids with one producer and many consumers, lock-free.
//
// The capacity is the number of environments, and none is queued twice at a time, so a push never
// fails. A consumer copies ids before it claims them: a claim that succeeds proves that the copy
// was not overwritten in between.
class WorkQueue {
 public:
  explicit WorkQueue(std::size_t capacity)
      : mask_(std::bit_ceil(capacity) - 1), ids_(std::make_unique<std::atomic<int>[]>(mask_ + 1)) {}

  // Producer only. The ids become visible together.
  void Push(std::span<const int> ids) {
    std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    for (int id : ids) ids_[tail++ & mask_].store(id, std::memory_order_relaxed);
    tail_.store(tail, std::memory_order_seq_cst);
  }

  // Takes up to `ids.size()` ids; gives how many, 0 if the queue is empty.
  std::size_t Pop(std::span<int> ids) {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      const std::uint64_t tail = tail_.load(std::memory_order_seq_cst);
      if (head >= tail) return 0;
      const std::size_t count = std::min<std::uint64_t>(ids.size(), tail - head);
      for (std::size_t i = 0; i < count; ++i) {
        ids[i] = ids_[(head + i) & mask_].load(std::memory_order_relaxed);
      }
      if (head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
        return count;
      }
    }
  }

 private:
  const std::size_t mask_;
  const std::unique_ptr<std::atomic<int>[]> ids_;
  alignas(64) std::atomic<std::uint64_t> head_ = 0;
  alignas(64) std::atomic<std::uint64_t> tail_ = 0;
};

}  // namespace srl
