#include "pool/team.h"

#include <pthread.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <system_error>

#include "pool/spin.h"

namespace srl {

void Team::Start(int threads, const std::vector<int>& cores) {
  const int known = static_cast<int>(std::thread::hardware_concurrency());
  for (int core : cores) {
    if (core >= 0 && core < known) continue;
    throw std::invalid_argument("core " + std::to_string(core) + ", expected 0 to " +
                                std::to_string(known - 1));
  }
  for (int i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this] { Loop(); });
    } catch (const std::system_error& error) {
      End();
      throw std::runtime_error("cannot start " + std::to_string(threads) +
                               " threads: " + error.what() + "; give threads=N");
    }
    if (cores.empty()) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[static_cast<std::size_t>(i) % cores.size()], &set);
    // A core that this process may not use leaves the thread where it is.
    pthread_setaffinity_np(threads_.back().native_handle(), sizeof(set), &set);
  }
}

void Team::Wake() {
  if (!unannounced_ || threads_.empty()) return;
  unannounced_ = false;
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) signal_.notify_all();
}

void Team::Loop() {
  std::uint32_t seen = signal_.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_acquire)) {
    while (work_()) {
    }
    std::uint32_t now = seen;
    const bool signalled = SpinUntil([&] {
      now = signal_.load(std::memory_order_acquire);
      return now != seen;
    });
    if (!signalled) {
      parked_.fetch_add(1, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
      now = signal_.load(std::memory_order_acquire);
    }
    seen = now;
  }
}

void Team::End() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace srl
