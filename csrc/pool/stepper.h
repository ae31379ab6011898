// Environments with all that is counted of their episodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/batch.h"
#include "pool/fault_log.h"
#include "pool/vector_environment.h"

namespace srl {

// Steps environments, writes their rows and counts their episodes. Next-step autoreset: where an
// episode ended, or an environment failed, the next step starts a new one.
//
// Several threads may step and write at a time, for environments that do not overlap; all else is
// for environments that are at rest.
class Stepper {
 public:
  // Faults go into `faults`, which must outlive this. An environment takes an action
  // `action_repeat` times, or until its episode ends; the rewards add up.
  Stepper(const EnvironmentType& type, const Options& options, const Specs& specs, int num_envs,
          int action_repeat, FaultLog* faults);

  // Has the environment start an episode next, from a new stream of chance if there is a seed.
  void Seed(int env_id, std::uint64_t seed) { random_[Index(env_id)].Seed(seed); }
  void ResetNext(int env_id) { reset_next_[Index(env_id)] = true; }

  // Moves `count` environments from `first` on. `actions` begins at those of environment 0.
  // `faults` is filled anew and goes on to Write.
  void Step(int first, int count, const std::byte* actions, Faults& faults);

  // Writes their rows, from `row` on. The row of an environment at fault holds its id alone. It
  // may be called for parts of what was stepped, with fault lanes counted from `first`.
  void Write(int first, int count, Batch* batch, int row, Faults& faults);

  // Repeats the actions of environments whose rows have been written, and writes these again.
  void Repeat(int first, int count, const std::byte* actions, Batch* batch, int row) {
    for (int step = 1; step < action_repeat_; ++step) RepeatOnce(first, count, actions, batch, row);
  }

  // Saves or restores the stream of chance, and then what has become of the episode.
  void SerializeRandom(int env_id, Archive& archive) { archive.Value(random_[Index(env_id)]); }
  void SerializeEpisode(int env_id, Archive& archive);

  VectorEnvironment& environments() const { return *environments_; }

 private:
  static std::size_t Index(int env_id) { return static_cast<std::size_t>(env_id); }
  void RepeatOnce(int first, int count, const std::byte* actions, Batch* batch, int row);
  void Account(int first, int count, const Rows& rows, Batch* batch, int row);
  void CheckFinite(int first, int count, const Rows& rows, Faults& faults) const;

  const Specs specs_;
  const std::size_t agents_;
  const std::size_t action_bytes_;  // of all agents of one environment
  const int action_repeat_;
  std::unique_ptr<VectorEnvironment> environments_;
  FaultLog* faults_;
  // Of each environment.
  std::vector<Random> random_;
  std::unique_ptr<bool[]> reset_next_;
  std::vector<std::int32_t> length_;
  std::vector<double> returns_;  // of each agent; float would lose small rewards
};

}  // namespace srl
