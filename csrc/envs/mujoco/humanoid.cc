// The humanoid, a trunk with arms and legs, as in Gymnasium's Humanoid-v5 (Tassa et al., 2012).

#include "envs/mujoco/locomotion.h"

namespace srl::mujoco {
namespace {

constexpr int kRootVelocities = 6;  // of the free joint, which no actuator moves

class Humanoid : public Task {
 public:
  explicit Humanoid(OptionReader& options)
      : Task(options, {.forward_reward_weight = 1.25,
                       .reset_noise_scale = 1e-2,
                       .healthy_reward = 5.0,
                       .contact_forces = true,
                       .ground_axes = 2,
                       .least_positions = 3,
                       .least_velocities = kRootVelocities}),
        contact_cost_weight_(options.Get("contact_cost_weight", 5e-7)),
        contact_cost_(options.GetRange("contact_cost", {-INFINITY, 10.0})),
        height_(options.GetRange("healthy_z", {1.0, 2.0})),
        include_cinert_(options.Get("include_cinert_in_observation", true)),
        include_cvel_(options.Get("include_cvel_in_observation", true)),
        include_qfrc_actuator_(options.Get("include_qfrc_actuator_in_observation", true)),
        include_cfrc_ext_(options.Get("include_cfrc_ext_in_observation", true)) {}

  // Of the centre of mass.
  double Place(const mjData& data) const override {
    double moment = 0.0;
    double mass = 0.0;
    for (int body = 0; body < model()->nbody; ++body) {
      moment += model()->body_mass[body] * data.xipos[3 * body];
      mass += model()->body_mass[body];
    }
    return moment / mass;
  }

 protected:
  bool Healthy(const mjData& data) const override { return height_.Inside(data.qpos[2]); }

  double ContactCost(const mjData& data) const override {
    double sum = 0.0;
    for (mjtNum force : ContactForces(data)) sum += force * force;
    return contact_cost_.Clip(contact_cost_weight_ * sum);
  }

  void ObserveMore(const mjData& data, std::vector<float>* observation) const override {
    const auto append = [observation](bool include, const mjtNum* values, int first, int end) {
      if (include) observation->insert(observation->end(), values + first, values + end);
    };
    const int bodies = model()->nbody;  // the world, which is the first, is left out
    append(include_cinert_, data.cinert, 10, 10 * bodies);
    append(include_cvel_, data.cvel, 6, 6 * bodies);
    append(include_qfrc_actuator_, data.qfrc_actuator, kRootVelocities, model()->nv);
    append(include_cfrc_ext_, data.cfrc_ext, 6, 6 * bodies);
  }

 private:
  const double contact_cost_weight_;
  const Range contact_cost_, height_;
  const bool include_cinert_, include_cvel_, include_qfrc_actuator_, include_cfrc_ext_;
};

const LocomotionRegistration humanoid("Humanoid-v5", &MakeTask<Humanoid>);

}  // namespace
}  // namespace srl::mujoco
