#include "pool/batch_ring.h"

#include <stdexcept>

#include "pool/spin.h"

namespace srl {

void PendingBatch::AwaitFull() {
  if (SpinUntil([this] { return missing() == 0; })) return;
  for (int left = missing(); left != 0; left = missing()) {
    missing_.wait(left, std::memory_order_acquire);
  }
}

BatchRing::BatchRing(int capacity, int batch_size)
    : capacity_(static_cast<std::uint64_t>(capacity)),
      batch_size_(static_cast<std::uint64_t>(batch_size)),
      batches_(std::make_unique<PendingBatch[]>(static_cast<std::size_t>(capacity))) {}

void BatchRing::Provide(Batch* batch) {
  if (provided_ - received_ >= capacity_) {
    throw std::invalid_argument("more batches are provided than can be in use");
  }
  At(provided_).Expect(batch, static_cast<int>(batch_size_));
  ++provided_;
}

int BatchRing::RowsWritten() const {
  int rows = 0;
  for (std::uint64_t i = received_; i < provided_; ++i) {
    rows += static_cast<int>(batch_size_) - At(i).missing();
  }
  return rows;
}

void BatchRing::Rewind() {
  for (std::uint64_t i = received_; i < provided_; ++i) {
    At(i).Expect(At(i).batch(), static_cast<int>(batch_size_));
  }
  next_row_.store(received_ * batch_size_, std::memory_order_relaxed);
}

}  // namespace srl
