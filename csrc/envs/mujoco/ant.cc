// The ant, four legs of two parts each, as in Gymnasium's Ant-v5 (Schulman et al., 2016).

#include <algorithm>
#include <stdexcept>

#include "envs/mujoco/locomotion.h"

namespace srl::mujoco {
namespace {

class Ant : public Task {
 public:
  explicit Ant(OptionReader& options)
      : Task(options, {.ctrl_cost_weight = 0.5,
                       .healthy_reward = 1.0,
                       .contact_forces = true,
                       .normal_velocity_noise = true,
                       .ground_axes = 2,
                       .least_positions = 3}),
        contact_cost_weight_(options.Get("contact_cost_weight", 5e-4)),
        height_(options.GetRange("healthy_z", {0.2, 1.0})),
        force_(options.GetRange("contact_force", {-1.0, 1.0})),
        include_cfrc_ext_(options.Get("include_cfrc_ext_in_observation", true)),
        main_body_(FindBody(options)) {}

  double Place(const mjData& data) const override { return data.xpos[3 * main_body_]; }

 protected:
  bool Healthy(const mjData& data) const override {
    const auto finite = [](double value) { return std::isfinite(value); };
    return std::all_of(data.qpos, data.qpos + model()->nq, finite) &&
           std::all_of(data.qvel, data.qvel + model()->nv, finite) && height_.low <= data.qpos[2] &&
           data.qpos[2] <= height_.high;
  }

  double ContactCost(const mjData& data) const override {
    double sum = 0.0;
    for (mjtNum force : ContactForces(data)) sum += force_.Clip(force) * force_.Clip(force);
    return contact_cost_weight_ * sum;
  }

  void ObserveMore(const mjData& data, std::vector<float>* observation) const override {
    if (!include_cfrc_ext_) return;
    for (mjtNum force : ContactForces(data).subspan(6)) {
      observation->push_back(static_cast<float>(force_.Clip(force)));
    }
  }

 private:
  // The body whose progress counts, given by its number or its name.
  int FindBody(OptionReader& options) const {
    int body = 0;
    if (options.IsText("main_body")) {
      const std::string name = options.Get("main_body", std::string());
      body = mj_name2id(model().get(), mjOBJ_BODY, name.c_str());
      if (body < 0) throw std::invalid_argument("the model has no body '" + name + "'");
    } else {
      body = options.Get("main_body", 1);
    }
    if (body < 0 || body >= model()->nbody) {
      throw std::invalid_argument("option 'main_body' = " + std::to_string(body) +
                                  ", but the model has bodies 0 to " +
                                  std::to_string(model()->nbody - 1));
    }
    return body;
  }

  const double contact_cost_weight_;
  const Range height_, force_;
  const bool include_cfrc_ext_;
  const int main_body_;
};

const LocomotionRegistration ant("Ant-v5", &MakeTask<Ant>);

}  // namespace
}  // namespace srl::mujoco
