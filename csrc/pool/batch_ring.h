// Batches that wait to be filled.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "pool/batch.h"

namespace srl {

// A batch, and how many of its rows are not written yet. One thread expects and waits; any thread
// may count rows that it has written.
class PendingBatch {
 public:
  void Expect(Batch* batch, int rows) {
    batch_ = batch;
    missing_.store(rows, std::memory_order_release);
  }
  Batch* batch() const { return batch_; }
  int missing() const { return missing_.load(std::memory_order_acquire); }
  void CountWritten(int rows) {
    if (missing_.fetch_sub(rows, std::memory_order_acq_rel) == rows) missing_.notify_all();
  }
  void AwaitFull();

 private:
  Batch* batch_ = nullptr;
  std::atomic<int> missing_ = 0;
};

// Batches of equal size that are filled in the order in which they were provided. One thread
// provides and removes; rows may be claimed by any thread while there is room.
class BatchRing {
 public:
  // Holds up to `capacity` batches of `batch_size` rows.
  BatchRing(int capacity, int batch_size);

  // Throws std::invalid_argument if there are `capacity` batches already.
  void Provide(Batch* batch);
  PendingBatch& oldest() { return At(received_); }
  void RemoveOldest() { ++received_; }

  // Rows of all batches that are provided, written or not.
  std::uint64_t room() const { return (provided_ - received_) * batch_size_; }
  int RowsWritten() const;

  // Fills all batches anew. No row may be claimed meanwhile.
  void Rewind();

  // Claims the next `count` rows, which may lie in more than one batch, and calls
  // `write(batch, row, rows)` for each part of them.
  template <typename Write>
  void Fill(int count, const Write& write) {
    std::uint64_t next =
        next_row_.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
    while (count > 0) {
      PendingBatch& pending = At(next / batch_size_);
      const auto row = static_cast<int>(next % batch_size_);
      const int rows = std::min(count, static_cast<int>(batch_size_) - row);
      write(pending.batch(), row, rows);
      pending.CountWritten(rows);
      next += static_cast<std::uint64_t>(rows);
      count -= rows;
    }
  }

 private:
  PendingBatch& At(std::uint64_t number) const { return batches_[number % capacity_]; }

  const std::uint64_t capacity_;
  const std::uint64_t batch_size_;
  const std::unique_ptr<PendingBatch[]> batches_;
  std::uint64_t provided_ = 0;  // batches ever provided
  std::uint64_t received_ = 0;  // batches ever removed
  std::atomic<std::uint64_t> next_row_ = 0;
};

}  // namespace srl
