// What there is to do in the world: one class for hide and seek, and one for each transfer task.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "envs/hide_and_seek/episode.h"
#include "srl/archive.h"
#include "srl/specs.h"

namespace srl::hide_and_seek {

inline constexpr int kMaxTaskFields = 3;

// Decides the layout, what is observed besides the world, the rewards and the end. All that it
// draws at random is in the World, so that equal worlds and actions give equal episodes.
class Task {
 public:
  explicit Task(const Config& config) : config_(config) {}
  virtual ~Task() = default;

  // Lays out a world, or gives false where something found no place.
  virtual bool Lay(WorldBuilder& builder) const = 0;

  // Arrays that are observed besides those of every task, at most kMaxTaskFields.
  virtual std::vector<Field> Fields() const { return {}; }
  virtual std::vector<std::string> Statistics() const = 0;

  // A new episode begins, or things were put elsewhere before its first step.
  virtual void Begin(const View& view) = 0;

  // Whether what the agent chooses is of no effect in this step.
  virtual bool Rests(const View& /*view*/, int /*agent*/) const { return false; }
  // Whether pressing for a lock counts for this object.
  virtual bool MayLock(const View& /*view*/, int /*object*/) const { return true; }
  // Moves things besides the agents, before the physics does.
  virtual void Drive(const Episode& /*episode*/, Simulation* /*simulation*/) const {}

  // After a step: its rewards, the statistics so far, and whether the episode ends.
  struct Verdict {
    std::span<float> reward;  // by agent
    std::span<float> statistics;
    bool* terminated;
  };
  virtual void Judge(const View& view, const Verdict& verdict) = 0;

  // Writes the agent's rows of `Fields`.
  virtual void Observe(const View& /*view*/, int /*agent*/,
                       std::span<float* const> /*rows*/) const {}

  // Further numbers for drawing and for tests.
  virtual void Inspect(const View& /*view*/,
                       std::map<std::string, std::vector<double>>* /*numbers*/) const {}

  // Saves or restores what changes during an episode.
  virtual void Serialize(Archive& archive) = 0;

 protected:
  const Config config_;
};

std::unique_ptr<Task> MakeTask(const Config& config);

// One for each kind; MakeTask chooses.
std::unique_ptr<Task> MakeGame(const Config& config);
std::unique_ptr<Task> MakeLockTask(const Config& config);
std::unique_ptr<Task> MakeBlueprint(const Config& config);
std::unique_ptr<Task> MakeShelter(const Config& config);
std::unique_ptr<Task> MakeObjectCounting(const Config& config);

// All that agents observe: of the world, then of the task.
std::vector<Field> AllFields(const Config& config, const Task& task);

}  // namespace srl::hide_and_seek
