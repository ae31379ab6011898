// A pendulum that is to be swung up and held, as in Gymnasium's Pendulum-v1.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "envs/classic_control/sine.h"
#include "envs/classic_control/vectorized.h"

namespace srl {
namespace {

class Pendulum {
 public:
  static constexpr const char* kName = "Pendulum";
  static constexpr int kStates = 2, kFeatures = 3;
  using Action = float;

  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({"g", "hide_velocities"});
    return {.agents = {"agent"},
            .observation = {{"", Space::Box(DType::kFloat32, {3}, {-1, -1, -kMaxSpeed},
                                            {1, 1, kMaxSpeed})}},
            .action = Space::Box(DType::kFloat32, {1}, {-kMaxTorque}, {kMaxTorque}),
            .statistics = {},
            .max_episode_steps = 200};
  }

  explicit Pendulum(const Options& options)
      : gravity_(options.Get("g", 10.0)), hide_velocities_(options.Get("hide_velocities", false)) {}

  void Start(Random& random, double* state) const {
    state[0] = random.Uniform(-std::numbers::pi, std::numbers::pi);
    state[1] = random.Uniform(-1, 1);
  }

  Outcome Step(double* state, Action action) const {
    double& angle = state[0];
    double& speed = state[1];
    const float torque = std::min(std::max(action, -kMaxTorque), kMaxTorque);
    constexpr double kTurn = 2 * std::numbers::pi;
    const double turned = angle + std::numbers::pi;
    const double from_upright = turned - kTurn * std::floor(turned / kTurn) - std::numbers::pi;
    const double cost =
        from_upright * from_upright + 0.1 * speed * speed + 0.001f * (torque * torque);
    const double sine = SineAndCosine(angle).sine;
    const double acceleration = 1.5 * gravity_ * sine + static_cast<double>(3.0f * torque);
    const double faster = speed + acceleration * kTimestep;
    speed = std::min(std::max(faster, -static_cast<double>(kMaxSpeed)), double{kMaxSpeed});
    angle += speed * kTimestep;
    return {-cost, false};
  }

  void Observe(const double* state, float* features) const {
    const auto [sine, cosine] = SineAndCosine(state[0]);
    features[0] = static_cast<float>(cosine);
    features[1] = static_cast<float>(sine);
    features[2] = hide_velocities_ ? 0 : static_cast<float>(state[1]);
  }

 private:
  static constexpr float kMaxSpeed = 8;
  static constexpr float kMaxTorque = 2;
  static constexpr double kTimestep = 0.05;

  double gravity_;
  bool hide_velocities_;
};

SRL_REGISTER_VECTORIZED("Pendulum-v1", Pendulum);

}  // namespace
}  // namespace srl
