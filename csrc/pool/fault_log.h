// Faults of environments, until the call that gives out their rows reports them.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "pool/vector_environment.h"

namespace srl {

// Thread-safe.
class FaultLog {
 public:
  // Keeps the faults from number `begin` on; lane 0 is environment `first`. Of several faults of
  // an environment the first one stays.
  void Add(int first, const Faults& faults, std::size_t begin);

  // Removes the faults of these environments and gives their messages, by environment.
  std::map<int, std::string> Take(std::span<const int> env_ids);

  // Likewise, and throws std::runtime_error with the message of the least environment, if any.
  void Throw(std::span<const int> env_ids);

 private:
  std::mutex mutex_;
  std::map<int, std::string> messages_;
  std::atomic<bool> any_ = false;  // so that a look without faults takes no lock
};

}  // namespace srl
