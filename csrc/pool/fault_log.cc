#include "pool/fault_log.h"

#include <stdexcept>

namespace srl {

void FaultLog::Add(int first, const Faults& faults, std::size_t begin) {
  if (begin == faults.size()) return;
  std::lock_guard lock(mutex_);
  for (std::size_t i = begin; i < faults.size(); ++i) {
    const int id = first + faults[i].lane;
    messages_.emplace(id, "environment " + std::to_string(id) + ": " + faults[i].message);
  }
  any_.store(true, std::memory_order_release);
}

std::map<int, std::string> FaultLog::Take(std::span<const int> env_ids) {
  std::map<int, std::string> taken;
  if (!any_.load(std::memory_order_acquire)) return taken;
  std::lock_guard lock(mutex_);
  for (int id : env_ids) taken.insert(messages_.extract(id));
  any_.store(!messages_.empty(), std::memory_order_release);
  return taken;
}

void FaultLog::Throw(std::span<const int> env_ids) {
  const auto taken = Take(env_ids);
  if (!taken.empty()) throw std::runtime_error(taken.begin()->second);
}

}  // namespace srl
