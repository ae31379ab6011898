// Environments made of a walking task.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "envs/mujoco/task.h"
#include "srl/environment.h"

namespace srl::mujoco {

// One walker: a row of state, which a step loads into the memory of the thread that runs it. So
// Step and Write need not come on the same thread, nor one right after the other.
//
// Where the physics fails, the episode is truncated: the last good observation stands again,
// nothing is earned, and the statistic `diverged` is 1.
class Locomotion : public Environment {
 public:
  explicit Locomotion(std::unique_ptr<const Task> task);

  Specs MakeSpecs() const;

  void Reset(Random& random) override;
  void Step(const std::byte* action, Random& random) override;
  void Write(const Rows& rows) const override;
  void Serialize(Archive& archive) override;
  // "qpos" and "qvel".
  std::map<std::string, std::vector<double>> Inspect() const override;
  // As after a start with these numbers: forces, controls and solver memory are zero again.
  void Inject(const std::string& name, const std::vector<double>& values) override;
  std::vector<std::byte> Model() const override { return task_->model().Saved(); }

 private:
  struct Outcome {
    float reward = 0;
    bool terminated = false;
    bool diverged = false;
  };

  void Begin(const mjData& data);
  void Keep(const mjData& data);
  template <typename Act>
  void ForEachStatistic(Act&& act) const;

  std::unique_ptr<const Task> task_;
  std::vector<mjtNum> state_;       // mjSTATE_INTEGRATION
  std::vector<float> observation_;  // of that state, and of the step that led there
  double place_ = 0;                // as that step computed it, which state_ alone cannot tell
  double x_position_ = 0;
  Outcome outcome_;  // of the last step
  Reward sums_;      // of the episode
};

using TaskMaker = std::unique_ptr<const Task> (*)(const Options&);

// Registers the environment of a task; `make` is MakeTask<T> of the task's type.
struct LocomotionRegistration {
  LocomotionRegistration(const std::string& id, TaskMaker make);
};

// The registered tasks, by the ids of their environments.
std::map<std::string, TaskMaker>& Tasks();

}  // namespace srl::mujoco
