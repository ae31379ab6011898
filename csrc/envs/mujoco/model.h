// A MuJoCo model from a file, shared by many environments on many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "envs/mujoco/engine.h"

namespace srl::mujoco {

// A compiled model, never changed, and one `mjData` for each thread that computes with it: an
// environment is a row of state that a thread takes up, advances and puts down again. So a
// thousand environments cost no more memory traffic than one for each core. Thread-safe.
class Model {
 public:
  // The model in an XML file, compiled once for all that hold it at a time. Throws
  // std::invalid_argument for a file that cannot be read or compiled, or whose simulation has more
  // state than mjSTATE_INTEGRATION.
  static std::shared_ptr<const Model> Load(const std::string& file);

  const mjModel* get() const { return model_.get(); }
  const mjModel* operator->() const { return model_.get(); }

  // The calling thread's own, which holds whatever was computed last, also if that failed.
  mjData* ThreadData() const;

  DataPointer MakeData() const;

  // As mj_saveModel writes it.
  std::vector<std::byte> Saved() const;

 private:
  explicit Model(const std::string& file);

  ModelPointer model_;
  const std::uint64_t serial_;  // tells models apart, also from those that are gone
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, DataPointer> data_;
};

}  // namespace srl::mujoco
