#include "bench/physics.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace srl::bench {

std::map<std::string, Measure>& Measures() {
  static std::map<std::string, Measure> measures;
  return measures;
}

double PhysicsRate(const std::string& id, const Options& options, const PhysicsRun& run) {
  const auto found = Measures().find(id);
  if (found != Measures().end()) return found->second(options, run);
  std::string known;
  for (const auto& [name, measure] : Measures()) known += (known.empty() ? "" : ", ") + name;
  throw std::invalid_argument("'" + id + "' has no bare physics to measure; these have: " + known);
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

}  // namespace srl::bench
