// The pole on a cart of Barto, Sutton and Anderson (1983): as within srl, but an object each.

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "srl/environment.h"

namespace srl {
namespace {

class CartPole : public Environment {
 public:
  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({});
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

  explicit CartPole(const Options&) {}

  void Reset(Random& random) override {
    for (double* value : {&x_, &x_dot_, &theta_, &theta_dot_}) {
      *value = random.Uniform(-0.05, 0.05);
    }
    reward_ = 0;
    terminated_ = false;
  }

  void Step(const std::byte* action, Random&) override {
    const bool right = *reinterpret_cast<const std::int32_t*>(action) == 1;
    const double force = right ? kForce : -kForce;
    const double cosine = std::cos(theta_);
    const double sine = std::sin(theta_);
    // The equations of motion of Florian (2007), without friction.
    const double push = (force + kPoleMassLength * theta_dot_ * theta_dot_ * sine) / kTotalMass;
    const double theta_acceleration =
        (kGravity * sine - cosine * push) /
        (kHalfLength * (4.0 / 3.0 - kPoleMass * cosine * cosine / kTotalMass));
    const double x_acceleration = push - kPoleMassLength * theta_acceleration * cosine / kTotalMass;
    x_ += kTimestep * x_dot_;
    x_dot_ += kTimestep * x_acceleration;
    theta_ += kTimestep * theta_dot_;
    theta_dot_ += kTimestep * theta_acceleration;
    reward_ = 1;
    terminated_ = std::abs(x_) > kPositionLimit || std::abs(theta_) > kAngleLimit;
  }

  void Write(const Rows& rows) const override {
    float* observation = rows.Observation<float>();
    observation[0] = static_cast<float>(x_);
    observation[1] = static_cast<float>(x_dot_);
    observation[2] = static_cast<float>(theta_);
    observation[3] = static_cast<float>(theta_dot_);
    *rows.reward = reward_;
    *rows.terminated = terminated_;
    *rows.truncated = false;
  }

  void Serialize(Archive& archive) override {
    archive.Value(x_);
    archive.Value(x_dot_);
    archive.Value(theta_);
    archive.Value(theta_dot_);
    archive.Value(reward_);
    archive.Value(terminated_);
  }

  std::map<std::string, std::vector<double>> Inspect() const override {
    return {{"state", {x_, x_dot_, theta_, theta_dot_}}};
  }

  void Inject(const std::string& name, const std::vector<double>& values) override {
    if (name != "state" || values.size() != 4) {
      throw std::invalid_argument("CartPole takes 'state' of 4 numbers, not '" + name + "' of " +
                                  std::to_string(values.size()));
    }
    x_ = values[0];
    x_dot_ = values[1];
    theta_ = values[2];
    theta_dot_ = values[3];
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

  double x_ = 0, x_dot_ = 0, theta_ = 0, theta_dot_ = 0;
  float reward_ = 0;
  bool terminated_ = false;
};

SRL_REGISTER_ENVIRONMENT("CartPole-v1", CartPole);

}  // namespace
}  // namespace srl
