// How long steps take, and what follows for how work is handed out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace srl {

// Measurements may come from any thread; LongestFirst is for one thread at a time.
class StepTimes {
 public:
  static constexpr int kMaxTask = 256;  // environments in a task

  explicit StepTimes(int num_envs);

  // Of one environment's step, a running mean over environments.
  float MeanNanoseconds() const { return mean_.load(std::memory_order_relaxed); }

  // Calls `run`, which steps `count` environments from `first` on, and sees now and then how long
  // it takes.
  template <typename Run>
  void Measure(int first, int count, const Run& run) {
    if (!Due(count)) return run();
    const std::int64_t start = Now();
    run();
    Record(first, count, static_cast<float>(Now() - start));
  }

  // Whether stepping so many environments takes longer than waking the team for it.
  bool WorthWaking(int num_envs) const;

  // How many environments a thread should take at a time, from 1 to kMaxTask.
  int TaskSize(int at_most, int num_envs, int threads) const;

  // Environments whose steps are long in the order in which a team that waits for the last one is
  // done soonest: the longest first, as of their last steps (Graham, 1969). Others as they are.
  std::span<const int> LongestFirst(std::span<const int> env_ids);

 private:
  bool Due(int count) const;
  static std::int64_t Now();
  void Record(int first, int count, float nanoseconds);

  std::atomic<float> mean_ = 1000;
  std::unique_ptr<std::atomic<float>[]> last_;  // of each environment
  std::vector<float> compared_;                 // what a sort compares, which must not change
  std::vector<int> order_;
};

}  // namespace srl
