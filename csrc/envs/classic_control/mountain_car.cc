// The car in a valley that is too weak to drive straight out of it (Moore, 1990), with three
// actions or a continuous one, as in Gymnasium's MountainCar-v0 and MountainCarContinuous-v0.

#include <algorithm>
#include <cmath>

#include "envs/classic_control/sine.h"
#include "envs/classic_control/vectorized.h"

namespace srl {
namespace {

constexpr double kMinPosition = -1.2, kMaxPosition = 0.6, kMaxSpeed = 0.07, kGravity = 0.0025;

Specs MakeSpecs(const Options& options, Space action, int max_episode_steps) {
  options.RefuseUnknown({"goal_velocity"});
  return {.agents = {"agent"},
          .observation = {{"", Space::Box(DType::kFloat32, {2}, {kMinPosition, -kMaxSpeed},
                                          {kMaxPosition, kMaxSpeed})}},
          .action = std::move(action),
          .statistics = {},
          .max_episode_steps = max_episode_steps};
}

class MountainCar {
 public:
  static constexpr const char* kName = "MountainCar";
  static constexpr int kStates = 2, kFeatures = 2;
  using Action = std::int32_t;

  static Specs MakeSpecs(const Options& options) {
    return srl::MakeSpecs(options, Space::Discrete(3), 200);
  }

  explicit MountainCar(const Options& options)
      : goal_velocity_(options.Get("goal_velocity", 0.0)) {}

  void Start(Random& random, double* state) const {
    state[0] = random.Uniform(-0.6, -0.4);
    state[1] = 0;
  }

  Outcome Step(double* state, Action action) const {
    const double slope = SineAndCosine(3 * state[0]).cosine;
    double velocity = state[1] + ((action - 1) * 0.001 - slope * kGravity);
    velocity = std::min(std::max(velocity, -kMaxSpeed), kMaxSpeed);
    double position = state[0] + velocity;
    position = std::min(std::max(position, kMinPosition), kMaxPosition);
    velocity = (position == kMinPosition) & (velocity < 0) ? 0.0 : velocity;
    state[0] = position;
    state[1] = velocity;
    const bool arrived = (position >= 0.5) & (velocity >= goal_velocity_);
    return {-1.0, arrived};
  }

  void Observe(const double* state, float* features) const {
    features[0] = static_cast<float>(state[0]);
    features[1] = static_cast<float>(state[1]);
  }

 private:
  double goal_velocity_;
};

// Gymnasium's keeps its state as float32 after the first step of an episode, and computes in
// float32 from there on; so does this, for equal trajectories.
class MountainCarContinuous {
 public:
  static constexpr const char* kName = "MountainCarContinuous";
  static constexpr int kStates = 3, kFeatures = 2;  // position, velocity, 1 before the first step
  using Action = float;

  static Specs MakeSpecs(const Options& options) {
    return srl::MakeSpecs(options, Space::Box(DType::kFloat32, {1}, {-1}, {1}), 999);
  }

  explicit MountainCarContinuous(const Options& options)
      : goal_velocity_(options.Get("goal_velocity", 0.0)) {}

  void Start(Random& random, double* state) const {
    state[0] = random.Uniform(-0.6, -0.4);
    state[1] = 0;
    state[2] = 1;
  }

  Outcome Step(double* state, Action action) const {
    const bool first = state[2] != 0;
    const float force = std::min(std::max(action, -1.0f), 1.0f);
    const bool within = (action >= -1.0f) & (action <= 1.0f);
    // A clipped force is a Python number, of 64 bits; one within its bounds is float32.
    const double push = within ? double{force * kPower} : force * double{0.0015};
    const double angle = first ? 3 * state[0] : double{3 * static_cast<float>(state[0])};
    const double slope = 0.0025 * SineAndCosine(angle).cosine;
    const double change =
        within ? double{static_cast<float>(push) - static_cast<float>(slope)} : push - slope;
    const float rounded = static_cast<float>(state[1]) + static_cast<float>(change);
    double velocity = first ? state[1] + change : double{rounded};
    velocity = Round(std::min(std::max(velocity, -kMaxSpeed), kMaxSpeed), first);
    double position = state[0] + velocity;
    position = Round(position, first);
    position = std::min(std::max(position, kMinPosition), kMaxPosition);
    velocity = (position == kMinPosition) & (velocity < 0) ? 0.0 : velocity;
    const bool arrived = (position >= Round(0.45, first)) & (velocity >= goal_velocity_);
    state[0] = static_cast<float>(position);
    state[1] = static_cast<float>(velocity);
    state[2] = 0;
    return {(arrived ? 100.0 : 0.0) - double{action} * double{action} * 0.1, arrived};
  }

  void Observe(const double* state, float* features) const {
    features[0] = static_cast<float>(state[0]);
    features[1] = static_cast<float>(state[1]);
  }

 private:
  static constexpr float kPower = 0.0015f;

  static double Round(double x, bool exact) { return exact ? x : double{static_cast<float>(x)}; }

  double goal_velocity_;
};

SRL_REGISTER_VECTORIZED("MountainCar-v0", MountainCar);
SRL_REGISTER_VECTORIZED("MountainCarContinuous-v0", MountainCarContinuous);

}  // namespace
}  // namespace srl
