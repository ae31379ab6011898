// Hide and seek with boxes, ramps and walls (Baker et al., 2019, "Emergent tool use from
// multi-agent autocurricula"), on MuJoCo.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/rays.h"
#include "envs/hide_and_seek/simulation.h"
#include "srl/environment.h"

namespace srl::hide_and_seek {

// The agents are hiders, then seekers. An action is five numbers for each agent: forces along x
// and y and a torque, 11 bins each with 5 for none, then whether to grab and whether to lock.
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
  // observed; observation/NAME: all agents' rows of a field. Also seen, step, prep_steps, horizon,
  // floor_size, teams, qpos, rooms, attempts.
  std::map<std::string, std::vector<double>> Inspect() const override;

  // agents_qpos, agents_qvel, boxes_qpos, boxes_qvel, ramps_qpos, ramps_qvel, step, last_locker,
  // locked_by (freezes where things are, so set it after the positions), and the world itself:
  // walls, and box_sizes (three numbers each), both of which restart the episode. Positions set at
  // step 0 count as the start.
  void Inject(const std::string& name, const std::vector<double>& values) override;

  std::vector<std::byte> Model() const override { return simulation_.SavedModel(); }

  // The physics, and what is set in it from step to step; for measuring.
  const Simulation& simulation() const { return simulation_; }
  void Record(std::vector<Settings>* tape) { simulation_.Record(tape); }

 private:
  struct Lock {
    bool locked = false;
    int last_locker = 0;  // whose team may unlock; at first the first hider's
  };

  // Numbers that tell how the game is played, in the order of the specs' names.
  struct Statistics {
    float hiders_unseen = 0;  // share of the steps after the preparation
    float main_steps = 0;
    float max_box_move_prep = 0;
    float max_box_move = 0;
    float num_box_lock_prep = 0;
    float num_box_lock = 0;
    float max_ramp_move_prep = 0;
    float max_ramp_move = 0;
    float num_ramp_lock_prep = 0;
    float num_ramp_lock = 0;
    float out_of_bounds = 0;  // share of the agents' steps after the preparation
    float diverged = 0;
  };
  static constexpr std::size_t kNumStatistics = 12;

  // All that changes besides the physics; a plain value that is saved byte by byte.
  struct Episode {
    World world;
    int step = 0;
    bool diverged = false;
    bool seen = false;  // some seeker sees some hider
    std::array<std::array<bool, kMaxThings>, kMaxAgents> sees = {};
    std::array<int, kMaxAgents> held = {};  // an object or -1
    std::array<Lock, kMaxObjects> locks = {};
    std::array<std::array<double, 3>, kMaxObjects> start = {};
    std::array<float, kMaxAgents> reward = {};
    int main_steps = 0;
    int unseen_steps = 0;
    int out_of_bounds = 0;  // agents' steps
    Statistics statistics;
  };

  struct Wish {
    bool grab = false;
    bool lock = false;
  };
  using Wishes = std::array<Wish, kMaxAgents>;
  using Distances = std::array<std::array<double, kMaxObjects>, kMaxAgents>;

  int agents() const { return config_.agents(); }
  int boxes() const { return episode_.world.num_boxes; }
  int objects() const { return boxes() + config_.ramps(); }
  int things() const { return agents() + objects(); }
  bool in_preparation() const { return episode_.step <= config_.preparation_steps(); }

  // Starts `world` anew, at step 0.
  void Begin(const World& world);
  void RememberStart();  // for the statistics of how far things moved

  // Within reach and seen in the last observation.
  bool Near(int agent, int object, const Distances& distances) const;
  void UpdateGrips(const Wishes& wishes, const Distances& distances);
  void UpdateLocks(const Wishes& wishes, const Distances& distances, Random& random);
  void UpdateLock(int object, const Wishes& wishes, const Distances& distances, Random& random);

  void Look();  // brings `sees` and `seen` up to date
  void Reward();
  bool OutOfBounds(int thing) const;
  void UpdateStatistics();
  double LargestMove(int first, int last) const;
  int CountLocked(int first, int last) const;

  // Brings all that agents observe up to date, lidar included.
  void Observe();
  void ObserveAgents(int agent);
  void ObserveObjects(int agent);
  void ObserveMasks(int agent);
  float* Row(int field, int agent);

  void InjectWorld(const std::string& name, const std::vector<double>& values);
  void InjectLocks(const std::vector<double>& locked_by);

  Config config_;
  Simulation simulation_;
  Scene scene_;  // scratch memory
  Episode episode_;
  std::vector<std::vector<float>> observation_;  // by field: all agents' rows
};

}  // namespace srl::hide_and_seek
