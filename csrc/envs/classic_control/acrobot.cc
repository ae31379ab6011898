// Two links of which only the joint between them is driven (Sutton, 1996), as in Gymnasium's
// Acrobot-v1 with the equations of Sutton and Barto's book.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "envs/classic_control/sine.h"
#include "envs/classic_control/vectorized.h"

namespace srl {
namespace {

class Acrobot {
 public:
  static constexpr const char* kName = "Acrobot";
  static constexpr int kStates = 4, kFeatures = 6;  // two angles, their velocities
  using Action = std::int32_t;

  static Specs MakeSpecs(const Options& options) {
    options.RefuseUnknown({});
    const std::vector<double> high = {1, 1, 1, 1, kMaxVelocity1, kMaxVelocity2};
    std::vector<double> low;
    for (double bound : high) low.push_back(-bound);
    return {.agents = {"agent"},
            .observation = {{"", Space::Box(DType::kFloat32, {6}, low, high)}},
            .action = Space::Discrete(3),
            .statistics = {},
            .max_episode_steps = 500};
  }

  explicit Acrobot(const Options&) {}

  void Start(Random& random, double* state) const {
    for (int k = 0; k < kStates; ++k) state[k] = static_cast<float>(random.Uniform(-0.1, 0.1));
  }

  // One step of 0.2 s by the classical Runge-Kutta method.
  Outcome Step(double* state, Action action) const {
    const double torque = action - 1;
    double k1[4], k2[4], k3[4], k4[4], next[4];
    Derivative(state, torque, k1);
    for (int i = 0; i < 4; ++i) next[i] = state[i] + kTimestep / 2 * k1[i];
    Derivative(next, torque, k2);
    for (int i = 0; i < 4; ++i) next[i] = state[i] + kTimestep / 2 * k2[i];
    Derivative(next, torque, k3);
    for (int i = 0; i < 4; ++i) next[i] = state[i] + kTimestep * k3[i];
    Derivative(next, torque, k4);
    for (int i = 0; i < 4; ++i) {
      state[i] += kTimestep / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
    }
    state[0] = Wrap(state[0]);
    state[1] = Wrap(state[1]);
    state[2] = std::min(std::max(state[2], -kMaxVelocity1), kMaxVelocity1);
    state[3] = std::min(std::max(state[3], -kMaxVelocity2), kMaxVelocity2);
    const auto [sine1, cosine1] = SineAndCosine(state[0]);
    const auto [sine2, cosine2] = SineAndCosine(state[1]);
    const bool high = -cosine1 - (cosine1 * cosine2 - sine1 * sine2) > 1.0;
    return {high ? 0.0 : -1.0, high};
  }

  void Observe(const double* state, float* features) const {
    const auto [sine1, cosine1] = SineAndCosine(state[0]);
    const auto [sine2, cosine2] = SineAndCosine(state[1]);
    features[0] = static_cast<float>(cosine1);
    features[1] = static_cast<float>(sine1);
    features[2] = static_cast<float>(cosine2);
    features[3] = static_cast<float>(sine2);
    features[4] = static_cast<float>(state[2]);
    features[5] = static_cast<float>(state[3]);
  }

 private:
  static constexpr double kMaxVelocity1 = 4 * std::numbers::pi;
  static constexpr double kMaxVelocity2 = 9 * std::numbers::pi;
  static constexpr double kTimestep = 0.2;
  static constexpr double kGravity = 9.8;
  // Both links have mass 1, length 1, their centre of mass at 0.5 and moment of inertia 1.
  static constexpr double kCentre = 0.5;

  // The change of (angle1, angle2, velocity1, velocity2) by time. Angles enter by the sines of
  // their sum too, which come from those of the two.
  void Derivative(const double* state, double torque, double* change) const {
    const double velocity1 = state[2], velocity2 = state[3];
    const auto [sine1, cosine1] = SineAndCosine(state[0]);
    const auto [sine2, cosine2] = SineAndCosine(state[1]);
    const double sine_of_sum = sine1 * cosine2 + cosine1 * sine2;
    const double d1 = kCentre * kCentre + (1 + kCentre * kCentre + 2 * kCentre * cosine2) + 2;
    const double d2 = kCentre * kCentre + kCentre * cosine2 + 1;
    const double phi2 = kCentre * kGravity * sine_of_sum;
    const double phi1 = -kCentre * velocity2 * velocity2 * sine2 -
                        2 * kCentre * velocity2 * velocity1 * sine2 +
                        (kCentre + 1) * kGravity * sine1 + phi2;
    const double ratio = d2 / d1;
    const double acceleration2 =
        (torque + ratio * phi1 - kCentre * velocity1 * velocity1 * sine2 - phi2) /
        (kCentre * kCentre + 1 - d2 * ratio);
    change[0] = velocity1;
    change[1] = velocity2;
    change[2] = -(d2 * acceleration2 + phi1) / d1;
    change[3] = acceleration2;
  }

  static double Wrap(double angle) {
    constexpr double kTurn = 2 * std::numbers::pi;
    const double turns = std::floor((angle + std::numbers::pi) / kTurn);
    return angle - kTurn * turns;
  }
};

SRL_REGISTER_VECTORIZED("Acrobot-v1", Acrobot);

}  // namespace
}  // namespace srl
