// The physics of one hide-and-seek world: moving, grabbing and freezing things.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/model.h"
#include "envs/hide_and_seek/rays.h"
#include "srl/archive.h"

namespace srl::hide_and_seek {

// What a game sets in the physics before a step: controls, grips, locks, and what wakes.
struct StepSettings {
  std::vector<mjtNum> control, weld, range;
  std::vector<int> held, woken;
  std::vector<mjtBool> grips, limited;
};

// One world's physics: a row of bytes. A thread has one model and its data for all worlds with as
// many things, into which it loads the row, advances it, and saves it again: MuJoCo's structs are
// five times as large, most of it statistics of the solver. Only what is `Loaded` can be used: else
// there is no memory to look into, and the process crashes. Things are numbered as in Config. Not
// thread-safe.
class Simulation {
 public:
  // Uses the memory of the calling thread: throws std::logic_error where another is loaded.
  explicit Simulation(const Config& config);

  // While it lives, the simulation is in the memory of the calling thread, from which it is saved
  // at the end unless it is const. There is one at a time in a thread; another throws
  // std::logic_error.
  class Loaded {
   public:
    explicit Loaded(Simulation* simulation);
    explicit Loaded(const Simulation* simulation);
    ~Loaded();
    Loaded(const Loaded&) = delete;
    Loaded& operator=(const Loaded&) = delete;

   private:
    const Simulation& simulation_;
    Simulation* to_save_ = nullptr;
  };

  // Builds `world` and puts everything at its start.
  void Start(const World& world);

  // Advances one environment step under `control`, three numbers for each agent.
  void Advance(std::span<const double> control);

  // From here on the settings of each step are added to `tape`, unless that is null.
  void Record(std::vector<StepSettings>* tape) { tape_ = tape; }

  // Whether the physics has failed since the start; the state may then hold anything.
  bool diverged() const;

  // Four numbers each: x, y, z of the corner and the angle, and their velocities.
  std::span<const double> position(int thing) const { return {data_->qpos + kJoints * thing, 4}; }
  std::span<const double> velocity(int thing) const { return {data_->qvel + kJoints * thing, 4}; }
  std::span<const double> all_positions() const {
    return {data_->qpos, static_cast<std::size_t>(model_->nq)};
  }
  // The body's centre.
  std::span<const double, 3> center(int thing) const {
    return std::span<const double, 3>(data_->xpos + 3 * (first_body_ + thing), 3);
  }
  // From the agent's centre to the object's box; 0 inside.
  double Distance(int agent, int object) const;

  // Records how `object` now stands to `agent`; while the grip is closed, it stays so.
  void TakeHold(int agent, int object);
  void SetGrip(int agent, bool closed) { data_->eq_active[agent] = closed; }

  // Freezes an object where it is, in mid-air too, or lets it move again.
  void Freeze(int object);
  void Release(int object);

  // Pushes an object along x, in newton, until another force is set.
  void PushAlongX(int object, double force) {
    data_->qfrc_applied[kJoints * thing(object)] = force;
  }

  // Everything that rays can hit, as it now stands.
  void FillScene(Scene* scene) const;

  // Puts things elsewhere, for tests: all positions or velocities of `count` things from `first`.
  void SetPositions(int first, std::span<const double> values);
  void SetVelocities(int first, std::span<const double> values);

  // What changes during an episode; reading needs the world that was started, from which the rest
  // follows.
  void Serialize(const World& world, Archive& archive);

  std::vector<std::byte> SavedModel() const;

  int first_body() const { return first_body_; }  // in the model, of the things that move
  const mjModel& model() const { return *model_; }
  const mjData& data() const { return *data_; }

 private:
  // Takes the thread's memory for worlds of this template, whatever it holds.
  void Attach(const mjModel& source) const;
  void Detach() const;
  void Load() const;
  void Save();
  void SerializeState(Archive& archive) const;

  // Furnishes the world, with everything at rest.
  void Build(const World& world);
  int thing(int object) const { return config_.agents() + object; }
  StepSettings CurrentSettings() const;
  // Recomputes all that follows from the state, with everything awake.
  void Refresh();

  Config config_;
  int first_body_;  // of the things that move
  int num_boxes_;
  const mjModel* source_;  // the template of a world with so many boxes
  std::vector<std::byte> row_;
  // The thread's while it is loaded, else null; mutable, as who only looks has to load it, too.
  mutable mjModel* model_ = nullptr;
  mutable mjData* data_ = nullptr;
  std::vector<StepSettings>* tape_ = nullptr;
};

// Does a step's physics alone, in a copy of a model and its data.
void Replay(const StepSettings& settings, mjModel* model, mjData* data);

}  // namespace srl::hide_and_seek
