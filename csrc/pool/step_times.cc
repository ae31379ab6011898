#include "pool/step_times.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace srl {
namespace {

// Waking a parked thread costs tens of microseconds on a virtual machine, so a task should be
// worth at least that, and a whole step below that is done by the calling thread alone.
constexpr float kTaskNanoseconds = 20'000;
constexpr float kWorthWaking = 40'000;

}  // namespace

StepTimes::StepTimes(int num_envs)
    : last_(std::make_unique<std::atomic<float>[]>(static_cast<std::size_t>(num_envs))),
      compared_(static_cast<std::size_t>(num_envs)) {}

bool StepTimes::Due(int count) const {
  thread_local unsigned calls = 0;
  const bool tiny = MeanNanoseconds() * static_cast<float>(count) < kTaskNanoseconds / 4;
  return !tiny || ++calls % 16 == 0;
}

std::int64_t StepTimes::Now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StepTimes::Record(int first, int count, float nanoseconds) {
  const float sample = nanoseconds / static_cast<float>(count);
  mean_.store(0.9f * MeanNanoseconds() + 0.1f * sample, std::memory_order_relaxed);
  for (int i = first; i < first + count; ++i) last_[i].store(sample, std::memory_order_relaxed);
}

bool StepTimes::WorthWaking(int num_envs) const {
  return MeanNanoseconds() * static_cast<float>(num_envs) > kWorthWaking;
}

int StepTimes::TaskSize(int at_most, int num_envs, int threads) const {
  const float each = std::max(1.0f, MeanNanoseconds());
  int task = std::min(at_most, static_cast<int>(kTaskNanoseconds / each));
  if (WorthWaking(num_envs)) {
    task = std::min(task, num_envs / (2 * threads));  // leaves some to the others
  }
  return std::clamp(task, 1, kMaxTask);
}

std::span<const int> StepTimes::LongestFirst(std::span<const int> env_ids) {
  if (MeanNanoseconds() < kTaskNanoseconds) return env_ids;
  order_.assign(env_ids.begin(), env_ids.end());
  for (int id : env_ids) compared_[id] = last_[id].load(std::memory_order_relaxed);
  std::sort(order_.begin(), order_.end(),
            [this](int a, int b) { return compared_[a] > compared_[b]; });
  return order_;
}

}  // namespace srl
