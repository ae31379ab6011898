// The rules of walking tasks on MuJoCo models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "envs/mujoco/model.h"
#include "srl/environment.h"

namespace srl::mujoco {

struct Range {
  double low = -INFINITY;
  double high = INFINITY;

  bool Inside(double value) const { return low < value && value < high; }
  double Clip(double value) const { return std::min(std::max(value, low), high); }
};

// Reads options, and refuses the others once all that are known were read.
class OptionReader {
 public:
  explicit OptionReader(const Options& options) : options_(options) {}

  template <typename T>
  T Get(const std::string& name, const T& fallback) {
    known_.insert(name);
    return options_.Get(name, fallback);
  }
  // The options `name`_min and `name`_max, which Gymnasium has as one tuple `name`_range.
  Range GetRange(const std::string& name, const Range& fallback);
  bool IsText(const std::string& name) const { return options_.IsText(name); }

  void RefuseOthers() const { options_.RefuseUnknown(known_); }

 private:
  const Options& options_;
  std::set<std::string> known_;
};

// What a step earned, by its parts; costs are positive.
struct Reward {
  double forward = 0;
  double survive = 0;
  double ctrl = 0;
  double contact = 0;

  double Total() const { return forward + survive - (ctrl + contact); }
};

// A model and the rules of one of Gymnasium's v5 tasks on it: how an episode starts and ends, what
// is observed and what is rewarded. It works on `mjData` that the caller owns, and does not change
// after its construction, so threads may share it. A kind of task derives from it, giving
// Gymnasium's defaults and what it does in its own way.
class Task {
 public:
  virtual ~Task() = default;

  const Model& model() const { return *model_; }
  int max_episode_steps() const { return max_episode_steps_; }
  bool has_health() const { return rules_.healthy_reward.has_value(); }
  bool has_contact_forces() const { return rules_.contact_forces; }

  // Puts the model at its start, moved a little at random, and computes what follows from that.
  void Start(mjData* data, Random& random) const;

  // Advances by one step of the environment, which is several of the physics, under `data->ctrl`.
  void Advance(mjData* data) const;

  // What a step earned that began at `previous_place`, after Advance.
  Reward Score(const mjData& data, double previous_place) const;
  bool Terminated(const mjData& data) const { return terminate_when_unhealthy_ && !Healthy(data); }

  // The coordinate (m) whose growth is rewarded.
  virtual double Place(const mjData& data) const { return data.qpos[0]; }

  // Replaces `observation` by what is seen now; always of the same length.
  void Observe(const mjData& data, std::vector<float>* observation) const;

 protected:
  struct Rules {
    int frame_skip = 5;
    double forward_reward_weight = 1.0;
    double ctrl_cost_weight = 0.1;
    double reset_noise_scale = 0.1;
    std::optional<double> healthy_reward = {};      // none: no posture is unhealthy
    bool contact_forces = false;                    // whether they are computed
    bool normal_velocity_noise = false;             // at the start; else uniform
    int ground_axes = 1;                            // the first positions, not observed by default
    double velocity_limit = INFINITY;               // of what is observed
    int least_positions = 1, least_velocities = 1;  // that the model must have
  };

  Task(OptionReader& options, const Rules& defaults);

  virtual bool Healthy(const mjData&) const { return true; }
  virtual double ContactCost(const mjData&) const { return 0.0; }
  // Appends what is observed besides positions and velocities.
  virtual void ObserveMore(const mjData&, std::vector<float>*) const {}

  // Force and torque on each body from outside, the world first: [6 nbody].
  std::span<const mjtNum> ContactForces(const mjData& data) const {
    return {data.cfrc_ext, 6 * static_cast<std::size_t>(model()->nbody)};
  }

 private:
  Rules rules_;
  bool terminate_when_unhealthy_ = false;
  bool exclude_current_positions_;
  int max_episode_steps_;
  std::shared_ptr<const Model> model_;
};

// Makes a task of type `T`, which is constructed from an OptionReader&. Throws
// std::invalid_argument for options or a model that do not fit.
template <typename T>
std::unique_ptr<const Task> MakeTask(const Options& options) {
  OptionReader reader(options);
  auto task = std::make_unique<const T>(reader);
  reader.RefuseOthers();
  return task;
}

}  // namespace srl::mujoco
