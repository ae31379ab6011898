// All environments of a pool as one object, which is what a pool steps.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "srl/environment.h"

namespace srl {

constexpr std::size_t kMaxFields = 32;  // of an observation

// Neighbouring environments of a pool that move on together; each array begins at the first's.
struct Lanes {
  int first = 0;  // index of the first environment
  int count = 0;
  const bool* restart = nullptr;       // [count], where an episode starts instead of a step
  const std::byte* actions = nullptr;  // of the A agents of each, one after the other
  Random* random = nullptr;            // [count]
};

// What went wrong in one of them, counted from the first.
struct Fault {
  int lane = 0;
  std::string message;
};
using Faults = std::vector<Fault>;

// Many environments of one kind. An environment that keeps its state as arrays, one number of all
// environments after the other, derives from this directly and steps several lanes by one
// instruction; all others are stepped one by one (see MakeIndividuals).
//
// Several threads may call Step and Write at a time, for lanes that do not overlap.
class VectorEnvironment {
 public:
  virtual ~VectorEnvironment() = default;

  // Steps or restarts each lane.
  virtual void Step(const Lanes& lanes, Faults& faults) = 0;

  // Writes what Step came to: `rows` begins at the first environment's, and the others' follow.
  // Called once after each Step, though not always for all of its lanes at a time.
  virtual void Write(int first, int count, const Rows& rows, Faults& faults) const = 0;

  // As in Environment, of one of them.
  virtual void Serialize(int index, Archive& archive) = 0;
  virtual std::map<std::string, std::vector<double>> Inspect(int index) const = 0;
  virtual void Inject(int index, const std::string& name, const std::vector<double>& values) = 0;
  virtual std::vector<std::byte> Model(int index) const = 0;
};

// `num_envs` environments of the type, as arrays where the type has them so.
std::unique_ptr<VectorEnvironment> MakeEnvironments(const EnvironmentType& type,
                                                    const Options& options, int num_envs);

}  // namespace srl
