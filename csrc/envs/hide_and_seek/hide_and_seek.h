// Hide and seek with boxes, ramps and walls (Baker et al., 2019, "Emergent tool use from
// multi-agent autocurricula"), on MuJoCo.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/episode.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/rays.h"
#include "envs/hide_and_seek/simulation.h"
#include "envs/hide_and_seek/task.h"
#include "srl/environment.h"

namespace srl::hide_and_seek {

// The world, with one of its tasks. The agents are hiders, then seekers. An action is five numbers
// for each agent: forces along x and y and a torque, 11 bins each with 5 for none, then whether to
// grab (with `grab_selective` one number for each object) and whether to lock.
class HideAndSeek final : public Environment {
 public:
  explicit HideAndSeek(const Options& options);

  static Specs MakeSpecs(const Options& options);

  void Reset(Random& random) override;
  void Step(const std::byte* action, Random& random) override;
  void Write(const Rows& rows) const override;
  void Serialize(Archive& archive) override;

  // agents and ramps: x, y, z, angle of the centre; boxes: also the sizes; walls: x, y, half_x,
  // half_y, height; *_qpos and *_qvel: four numbers each as observed; locked, locked_by,
  // last_locker: by object, boxes then ramps; grabbed: an object or -1 by agent; mask_agents: as
  // observed; lidar: 30 distances by agent, not compressed; observation/NAME: all agents' rows of a
  // field. Also seen, step, prep_steps, horizon, floor_size, teams, qpos, rooms, attempts, task
  // (its number in kTaskNames), and what the task has: food (x, y, z, health), food_health (at
  // most), sites (x, y), cylinder (x, y, radius), lock_order, goes_left.
  std::map<std::string, std::vector<double>> Inspect() const override;

  // agents_qpos, agents_qvel, boxes_qpos, boxes_qvel, ramps_qpos, ramps_qvel, step, last_locker,
  // locked_by (freezes where things are, so set it after the positions), and the world itself:
  // walls, box_sizes (three numbers each), food (x, y each), sites, cylinder, lock_order and
  // goes_left, all of which restart the episode. Positions set at step 0 count as the start.
  void Inject(const std::string& name, const std::vector<double>& values) override;

  std::vector<std::byte> Model() const override {
    const Simulation::Loaded loaded(&simulation_);
    return simulation_.SavedModel();
  }

  // The physics, and what is set in it from step to step; for measuring.
  Simulation& simulation() { return simulation_; }
  void Record(std::vector<StepSettings>* tape) { simulation_.Record(tape); }

 private:
  struct Wish {
    std::array<bool, kMaxObjects> grab = {};
    bool lock = false;
  };
  using Wishes = std::array<Wish, kMaxAgents>;
  using Distances = std::array<std::array<double, kMaxObjects>, kMaxAgents>;

  int agents() const { return config_.agents(); }
  int boxes() const { return episode_.world.num_boxes; }
  int objects() const { return boxes() + config_.ramps; }
  int things() const { return agents() + objects(); }
  View view() const { return {config_, simulation_, scene_, episode_}; }

  // Starts `world` anew, at step 0.
  void Begin(const World& world);
  Wish ReadWish(const std::int32_t* chosen) const;

  // Within reach and, unless it may be unseen, seen in the last observation.
  bool Near(int agent, int object, const Distances& distances, bool unseen) const;
  // The object that each agent now holds, or -1.
  using Held = std::array<int, kMaxAgents>;
  Held ChooseNearest(const Wishes& wishes, const Distances& distances) const;
  Held ChooseExclusively(const Wishes& wishes, const Distances& distances) const;
  void UpdateGrips(const Wishes& wishes, const Distances& distances);
  void UpdateLocks(const Wishes& wishes, const Distances& distances, Random& random);
  void UpdateLock(int object, const Wishes& wishes, const Distances& distances, Random& random);
  bool MayUnlock(int agent, const Lock& lock) const;

  void Look();  // brings `sees` and `seen` up to date

  // Brings all that agents observe up to date, lidar included.
  void Observe();
  void ObserveAgents(int agent);
  void ObserveObjects(int agent);
  void ObserveMasks(int agent);
  void ObserveLidar(int agent);
  void ObserveTask(int agent);
  float* Row(int field, int agent);

  World InjectedWorld(const std::string& name, const std::vector<double>& values);
  void SetBoxSizes(const std::vector<double>& values, World* world) const;
  void InjectLocks(const std::vector<double>& locked_by);

  Config config_;
  std::unique_ptr<Task> task_;
  Simulation simulation_;
  Scene scene_;  // what rays may hit, as of now
  Episode episode_;
  std::vector<float> statistics_;                // the task's, then whether the physics diverged
  std::vector<std::vector<float>> observation_;  // by field: all agents' rows
  std::size_t num_world_fields_ = 0;             // the rest are the task's
};

}  // namespace srl::hide_and_seek
