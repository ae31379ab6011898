// The pole on a cart of Barto, Sutton and Anderson (1983), as in Gymnasium's CartPole-v1.

#include <cmath>
#include <numbers>

#include "envs/classic_control/sine.h"
#include "envs/classic_control/vectorized.h"

namespace srl {
namespace {

class CartPole {
 public:
  static constexpr const char* kName = "CartPole";
  static constexpr int kStates = 4, kFeatures = 4;
  using Action = std::int32_t;

  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({"sutton_barto_reward", "hide_velocities"});
    constexpr double kUnbounded = INFINITY;
    const std::vector<double> high = {2 * kPositionLimit, kUnbounded, 2 * kAngleLimit, kUnbounded};
    std::vector<double> low;
    for (double bound : high) low.push_back(-bound);
    return {.agents = {"agent"},
            .observation = {{"", Space::Box(DType::kFloat32, {4}, low, high)}},
            .action = Space::Discrete(2),
            .statistics = {},
            .max_episode_steps = 500};
  }

  explicit CartPole(const Options& options)
      : hide_velocities_(options.Get("hide_velocities", false)) {
    if (!options.Get("sutton_barto_reward", false)) return;
    reward_ = 0;  // and -1 at the end
    last_reward_ = -1;
  }

  void Start(Random& random, double* state) const {
    for (int k = 0; k < kStates; ++k) state[k] = random.Uniform(-0.05, 0.05);
  }

  // The equations of motion of Florian (2007), without friction.
  Outcome Step(double* state, Action action) const {
    double &x = state[0], &x_dot = state[1], &theta = state[2], &theta_dot = state[3];
    const double force = action == 1 ? kForce : -kForce;
    const auto [sine, cosine] = SineAndCosine(theta);
    const double push = (force + kPoleMassLength * theta_dot * theta_dot * sine) / kTotalMass;
    const double theta_acceleration =
        (kGravity * sine - cosine * push) /
        (kHalfLength * (4.0 / 3.0 - kPoleMass * cosine * cosine / kTotalMass));
    const double x_acceleration = push - kPoleMassLength * theta_acceleration * cosine / kTotalMass;
    x += kTimestep * x_dot;
    x_dot += kTimestep * x_acceleration;
    theta += kTimestep * theta_dot;
    theta_dot += kTimestep * theta_acceleration;
    const bool fallen = (std::abs(x) > kPositionLimit) | (std::abs(theta) > kAngleLimit);
    return {fallen ? last_reward_ : reward_, fallen};
  }

  void Observe(const double* state, float* features) const {
    for (int k = 0; k < kStates; ++k) features[k] = static_cast<float>(state[k]);
    if (hide_velocities_) features[1] = features[3] = 0;
  }

 private:
  static constexpr double kGravity = 9.8;
  static constexpr double kPoleMass = 0.1;
  static constexpr double kTotalMass = 1.0 + kPoleMass;
  static constexpr double kHalfLength = 0.5;
  static constexpr double kPoleMassLength = kPoleMass * kHalfLength;
  static constexpr double kForce = 10.0;
  static constexpr double kTimestep = 0.02;
  static constexpr double kPositionLimit = 2.4;
  static constexpr double kAngleLimit = 12 * 2 * std::numbers::pi / 360;

  double reward_ = 1, last_reward_ = 1;
  bool hide_velocities_;
};

SRL_REGISTER_VECTORIZED("CartPole-v1", CartPole);

}  // namespace
}  // namespace srl
