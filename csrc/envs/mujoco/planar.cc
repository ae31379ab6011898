// The walkers that move in a plane, as in Gymnasium's HalfCheetah-v5, Hopper-v5 and Walker2d-v5:
// a cheetah with six joints (Wawrzynski, 2009), a leg that hops (Erez et al., 2011), and two legs.

#include <algorithm>

#include "envs/mujoco/locomotion.h"

namespace srl::mujoco {
namespace {

class HalfCheetah : public Task {
 public:
  explicit HalfCheetah(OptionReader& options) : Task(options, {.normal_velocity_noise = true}) {}
};

// A hopper and a walker are healthy while they stand upright.
class Upright : public Task {
 protected:
  Upright(OptionReader& options, const Range& height, const Range& angle)
      : Task(options, {.frame_skip = 4,
                       .ctrl_cost_weight = 1e-3,
                       .reset_noise_scale = 5e-3,
                       .healthy_reward = 1.0,
                       .velocity_limit = 10.0,
                       .least_positions = 3}),
        height_(options.GetRange("healthy_z", height)),
        angle_(options.GetRange("healthy_angle", angle)) {}

  bool Healthy(const mjData& data) const override {
    return height_.Inside(data.qpos[1]) && angle_.Inside(data.qpos[2]);
  }

 private:
  const Range height_, angle_;
};

class Walker2d : public Upright {
 public:
  explicit Walker2d(OptionReader& options) : Upright(options, {0.8, 2.0}, {-1.0, 1.0}) {}
};

class Hopper : public Upright {
 public:
  explicit Hopper(OptionReader& options)
      : Upright(options, {.low = 0.7}, {-0.2, 0.2}),
        state_(options.GetRange("healthy_state", {-100.0, 100.0})) {}

 protected:
  bool Healthy(const mjData& data) const override {
    const auto inside = [this](double value) { return state_.Inside(value); };
    return Upright::Healthy(data) && std::all_of(data.qpos + 2, data.qpos + model()->nq, inside) &&
           std::all_of(data.qvel, data.qvel + model()->nv, inside);
  }

 private:
  const Range state_;
};

const LocomotionRegistration half_cheetah("HalfCheetah-v5", &MakeTask<HalfCheetah>);
const LocomotionRegistration hopper("Hopper-v5", &MakeTask<Hopper>);
const LocomotionRegistration walker2d("Walker2d-v5", &MakeTask<Walker2d>);

}  // namespace
}  // namespace srl::mujoco
