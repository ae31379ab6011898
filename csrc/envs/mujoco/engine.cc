#include "envs/mujoco/engine.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace srl::mujoco {
namespace {

constexpr std::array kFailures = {mjWARN_CONTACTFULL, mjWARN_CNSTRFULL, mjWARN_BADQPOS,
                                  mjWARN_BADQVEL,     mjWARN_BADQACC,   mjWARN_BADCTRL};

}  // namespace

void ThrowErrors() {
  static std::once_flag once;
  std::call_once(once, [] {
    // The file would lie in the working directory, written by all environments at once. Warnings
    // still reach the console, and what they mean is counted in the episode's statistics.
    mjLogConfig log = mju_getLogConfig();
    log.logto_file = false;
    mju_setLogConfig(log);
    if (mju_user_error) return;  // somebody else handles them
    mju_user_error = [](const char* message) {
      throw std::runtime_error(std::string("MuJoCo: ") + message);
    };
  });
}

bool Failed(const mjData& data) {
  return std::any_of(kFailures.begin(), kFailures.end(),
                     [&data](int kind) { return data.warning[kind].number > 0; });
}

double SumOfRates(const PhysicsRun& run, const std::function<double(int first, int end)>& rate) {
  if (run.num_envs < 1 || run.threads < 0 || !(run.seconds > 0) || run.hold < 1) {
    throw std::invalid_argument("num_envs = " + std::to_string(run.num_envs) +
                                ", threads = " + std::to_string(run.threads) +
                                ", seconds = " + std::to_string(run.seconds) +
                                ", hold = " + std::to_string(run.hold) +
                                "; expected at least 1, 0, more than 0 and at least 1");
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = std::min(run.threads == 0 ? cores : run.threads, run.num_envs);
  std::vector<std::future<double>> rates;
  for (int i = 0; i < threads; ++i) {
    const int first = static_cast<int>(std::int64_t{run.num_envs} * i / threads);
    const int end = static_cast<int>(std::int64_t{run.num_envs} * (i + 1) / threads);
    rates.push_back(std::async(std::launch::async, rate, first, end));
  }
  double sum = 0.0;
  for (std::future<double>& rate : rates) sum += rate.get();
  return sum;
}

}  // namespace srl::mujoco
