#include "envs/hide_and_seek/hide_and_seek.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "envs/hide_and_seek/bare_physics.h"
#include "envs/hide_and_seek/fields.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kMoveBins = 11;
constexpr int kNoMove = kMoveBins / 2;
constexpr int kActionSize = 5;
constexpr double kOutOfBoundsReward = -10.0;
constexpr double kHalfViewAngle = 3.0 / 8.0 * std::numbers::pi;

// The control of a bin: evenly from -0.9 to 0.9, with the rounding errors of the single precision
// in which the original game computes them, so that its recordings can be replayed.
constexpr std::array<float, kMoveBins> kBinControl = {
    -0.9f,       -0.71999997f, -0.53999996f, -0.36f,     -0.18f, 0.0f,
    0.17999995f, 0.36f,        0.53999996f,  0.7199999f, 0.9f};

}  // namespace

HideAndSeek::HideAndSeek(const Options& options) : config_(options), simulation_(config_) {
  for (const Field& field : ObservationFields(config_)) {
    observation_.emplace_back(agents() * field.space.Elements());
  }
  // Some world, so that looking into the game or saving it works before the first reset too.
  Random random(0);
  Reset(random);
}

Specs HideAndSeek::MakeSpecs(const Options& options) {
  const Config config(options);
  Specs specs;
  for (int i = 0; i < config.hiders; ++i) specs.agents.push_back("hider_" + std::to_string(i));
  for (int i = 0; i < config.seekers; ++i) specs.agents.push_back("seeker_" + std::to_string(i));
  specs.observation = ObservationFields(config);
  specs.action = Space::MultiDiscrete({kMoveBins, kMoveBins, kMoveBins, 2, 2});
  specs.statistics = {"hiders_unseen",      "main_steps",    "max_box_move_prep",  "max_box_move",
                      "num_box_lock_prep",  "num_box_lock",  "max_ramp_move_prep", "max_ramp_move",
                      "num_ramp_lock_prep", "num_ramp_lock", "out_of_bounds",      "diverged"};
  specs.max_episode_steps = config.horizon;
  return specs;
}

void HideAndSeek::Reset(Random& random) { Begin(DrawWorld(config_, random)); }

void HideAndSeek::Begin(const World& world) {
  episode_ = Episode{};
  episode_.world = world;
  episode_.held.fill(-1);
  simulation_.Start(world);
  RememberStart();
  Look();
  Observe();
}

void HideAndSeek::RememberStart() {
  for (int i = 0; i < objects(); ++i) {
    std::copy_n(simulation_.position(agents() + i).begin(), 3, episode_.start[i].begin());
  }
}

void HideAndSeek::Step(const std::byte* action, Random& random) {
  const auto* bins = reinterpret_cast<const std::int32_t*>(action);
  const bool seekers_rest = episode_.step < config_.preparation_steps();
  std::array<double, kMaxAgents * kControls> control = {};
  Wishes wishes = {};
  Distances distances = {};
  for (int agent = 0; agent < agents(); ++agent) {
    const std::int32_t* chosen = bins + kActionSize * agent;
    const bool rests = seekers_rest && config_.team(agent) == 1;
    for (int i = 0; i < kControls; ++i) {
      control[kControls * agent + i] = kBinControl[rests ? kNoMove : chosen[i]];
    }
    if (!rests) wishes[agent] = {chosen[3] == 1, chosen[4] == 1};
    for (int i = 0; i < objects(); ++i) distances[agent][i] = simulation_.Distance(agent, i);
  }
  UpdateGrips(wishes, distances);
  UpdateLocks(wishes, distances, random);

  simulation_.Advance({control.data(), static_cast<std::size_t>(kControls * agents())});
  ++episode_.step;
  if (simulation_.diverged()) {
    // The state is lost: the episode ends with what was observed last.
    episode_.diverged = true;
    episode_.statistics.diverged = 1.0f;
    episode_.reward.fill(0.0f);
    return;
  }
  Look();
  Reward();
  UpdateStatistics();
  Observe();
}

bool HideAndSeek::Near(int agent, int object, const Distances& distances) const {
  return distances[agent][object] <= kReach && episode_.sees[agent][agents() + object];
}

void HideAndSeek::UpdateGrips(const Wishes& wishes, const Distances& distances) {
  for (int agent = 0; agent < agents(); ++agent) {
    int nearest = -1;
    for (int i = 0; i < objects(); ++i) {
      if (!wishes[agent].grab || !Near(agent, i, distances)) continue;
      if (nearest < 0 || distances[agent][i] < distances[agent][nearest]) nearest = i;
    }
    // A grip that goes on keeps the pose in which it began.
    if (nearest >= 0 && nearest != episode_.held[agent]) simulation_.TakeHold(agent, nearest);
    simulation_.SetGrip(agent, nearest >= 0);
    episode_.held[agent] = nearest;
  }
}

void HideAndSeek::UpdateLocks(const Wishes& wishes, const Distances& distances, Random& random) {
  if (config_.ramps_lockable()) {
    for (int i = boxes(); i < objects(); ++i) UpdateLock(i, wishes, distances, random);
  }
  for (int i = 0; i < boxes(); ++i) UpdateLock(i, wishes, distances, random);
}

void HideAndSeek::UpdateLock(int object, const Wishes& wishes, const Distances& distances,
                             Random& random) {
  Lock& lock = episode_.locks[object];
  std::array<int, kMaxAgents> lockers = {};
  int num_lockers = 0;
  bool unlock = false;
  for (int agent = 0; agent < agents(); ++agent) {
    if (!Near(agent, object, distances)) continue;
    if (wishes[agent].lock) {
      lockers[num_lockers++] = agent;
    } else if (config_.team(agent) == config_.team(lock.last_locker)) {
      // Whoever stands near and does not press also keeps others from locking.
      unlock = true;
    }
  }
  if (unlock) {
    if (lock.locked) simulation_.Release(object);
    lock.locked = false;
  } else if (num_lockers > 0 && !lock.locked) {
    lock.locked = true;
    lock.last_locker = lockers[random.Integer(0, num_lockers - 1)];
    simulation_.Freeze(object);
  }
}

void HideAndSeek::Look() {
  static const double kCosine = std::cos(kHalfViewAngle);
  simulation_.FillScene(&scene_);
  episode_.seen = false;
  for (int agent = 0; agent < agents(); ++agent) {
    const auto from = simulation_.position(agent);
    const double facing_x = std::sin(from[3]);  // that is, of the angle less a right angle
    const double facing_y = -std::cos(from[3]);
    for (int thing = 0; thing < things(); ++thing) {
      if (thing == agent) continue;
      // The cone is between corners, as qpos has them, though the line of sight is not.
      const auto to = simulation_.position(thing);
      const double x = to[0] - from[0];
      const double y = to[1] - from[1];
      const bool ahead = x * facing_x + y * facing_y >= kCosine * std::sqrt(x * x + y * y);
      const bool sees = ahead && InSight(scene_, agent, thing);
      episode_.sees[agent][thing] = sees;
      if (sees && config_.team(agent) == 1 && thing < config_.hiders) episode_.seen = true;
    }
  }
}

bool HideAndSeek::OutOfBounds(int thing) const {
  const auto [low, high] = config_.allowed_range();
  const auto center = simulation_.center(thing);
  return center[0] < low || center[0] > high || center[1] < low || center[1] > high;
}

void HideAndSeek::Reward() {
  if (in_preparation()) {
    episode_.reward.fill(0.0f);
    return;
  }
  ++episode_.main_steps;
  if (!episode_.seen) ++episode_.unseen_steps;
  bool all_out = false;
  if (!config_.full()) {
    for (int thing = agents(); thing < things(); ++thing) all_out |= OutOfBounds(thing);
  }
  for (int agent = 0; agent < agents(); ++agent) {
    const bool pleased = episode_.seen == (config_.team(agent) == 1);
    episode_.reward[agent] = pleased ? 1.0f : -1.0f;
    if (all_out || OutOfBounds(agent)) {
      episode_.reward[agent] = kOutOfBoundsReward;
      ++episode_.out_of_bounds;
    }
  }
}

double HideAndSeek::LargestMove(int first, int last) const {
  double largest = 0.0;
  for (int i = first; i < last; ++i) {
    const auto now = simulation_.position(agents() + i);
    const auto& start = episode_.start[i];
    largest =
        std::max(largest, std::hypot(now[0] - start[0], now[1] - start[1], now[2] - start[2]));
  }
  return largest;
}

int HideAndSeek::CountLocked(int first, int last) const {
  return static_cast<int>(std::count_if(episode_.locks.begin() + first,
                                        episode_.locks.begin() + last,
                                        [](const Lock& lock) { return lock.locked; }));
}

void HideAndSeek::UpdateStatistics() {
  Statistics& statistics = episode_.statistics;
  const bool main_phase = !in_preparation();
  statistics.max_box_move = static_cast<float>(LargestMove(0, boxes()));
  statistics.max_ramp_move = static_cast<float>(LargestMove(boxes(), objects()));
  statistics.num_box_lock = static_cast<float>(CountLocked(0, boxes()));
  statistics.num_ramp_lock = static_cast<float>(CountLocked(boxes(), objects()));
  // Those of the preparation stop after the first step of the main phase.
  if (episode_.main_steps <= 1) {
    statistics.max_box_move_prep = statistics.max_box_move;
    statistics.max_ramp_move_prep = statistics.max_ramp_move;
    statistics.num_box_lock_prep = statistics.num_box_lock;
    statistics.num_ramp_lock_prep = statistics.num_ramp_lock;
  }
  if (!main_phase) return;
  const auto steps = static_cast<float>(episode_.main_steps);
  statistics.main_steps = steps;
  statistics.hiders_unseen = static_cast<float>(episode_.unseen_steps) / steps;
  statistics.out_of_bounds =
      static_cast<float>(episode_.out_of_bounds) / (steps * static_cast<float>(agents()));
}

static const Registration kRegistration(
    "HideAndSeek-v1",
    {
        .specs = &HideAndSeek::MakeSpecs,
        .make = [](const Options& options) { return std::make_unique<HideAndSeek>(options); },
        .bare_physics = &BarePhysics,
    });

}  // namespace srl::hide_and_seek
