// Lock and return, and sequential lock: boxes are to be locked, in a hidden order if there are
// several; then, with one, the agent is to return to where it began (Baker et al., 2020, section
// 6).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "envs/hide_and_seek/task.h"
#include "envs/hide_and_seek/tasks/statistics.h"

namespace srl::hide_and_seek {
namespace {

constexpr double kLockReward = 5.0;
constexpr double kUnlockPenalty = 5.0;
constexpr double kApproachReward = 0.5;  // for each metre nearer to the next target
constexpr double kCompleteReward = 1.0;  // for each step
constexpr double kReturnRadius = 0.1;
constexpr int kNothing = -1;

// Three rooms without doors: a wall from side to side, and one from its middle to one side.
struct ThreeRooms {
  explicit ThreeRooms(Random& random) {
    const int line = static_cast<int>(kGridSize * random.Uniform(0.4, 0.6));
    const int split = static_cast<int>(kGridSize * random.Uniform(0.4, 0.6));
    const bool vertical = random.Coin(0.5);
    const bool before = random.Coin(0.5);  // the second wall is on the side of smaller coordinates
    const int last = kGridSize - 1;
    walls = OuterWalls();
    walls.push_back({vertical, line, 0, last, false});
    walls.push_back({!vertical, split, before ? 0 : line, before ? line : last, false});

    // Cells across the first wall and along it, the last one left out; where a room ends varies by
    // a cell, as in the original game.
    struct Range {
      int low, high;
    };
    const Range large = before ? Range{line + 1, last} : Range{0, line - 1};
    const Range small = before ? Range{1, line - 1} : Range{line + 1, last};
    const std::array<Range, 3> across = {large, small, small};
    const std::array<Range, 3> along = {Range{1, last}, Range{1, split - 1},
                                        Range{split + 1, last}};
    for (std::size_t i = 0; i < rooms.size(); ++i) {
      const Range& x = vertical ? across[i] : along[i];
      const Range& y = vertical ? along[i] : across[i];
      rooms[i] = DrawWithin({x.low, y.low}, {x.high, y.high});
    }
  }

  std::vector<GridWall> walls;
  std::array<DrawCell, 3> rooms;
};

class LockTask final : public Task {
 public:
  using Task::Task;

  bool Lay(WorldBuilder& builder) const override;

  std::vector<std::string> Statistics() const override {
    return {"complete", "num_box_lock", "max_box_move"};
  }

  void Begin(const View& view) override;
  bool MayLock(const View& view, int object) const override;
  void Judge(const View& view, const Verdict& verdict) override;

  void Inspect(const View& view,
               std::map<std::string, std::vector<double>>* numbers) const override {
    const auto& order = view.episode.world.lock_order;
    (*numbers)["lock_order"].assign(order.begin(), order.begin() + view.boxes());
  }

  void Serialize(Archive& archive) override { archive.Value(state_); }

 private:
  struct Target {
    int box = kNothing;
    double distance = 0.0;
  };

  // A plain value that is saved byte by byte.
  struct State {
    Displacement displacement;
    std::array<double, 2> home = {};
    double home_distance = 0.0;
    Target target;
    std::array<bool, kMaxBoxes> locked = {};
    int steps = 0;
    int complete_steps = 0;
  };

  bool returns() const { return config_.task == TaskKind::kLockAndReturn; }
  // The box to be locked next: the first in order or, where there is none, the nearest.
  Target NextTarget(const View& view) const;
  double ApproachReward(const Target& target, double home_distance) const;

  State state_;
};

bool LockTask::Lay(WorldBuilder& builder) const {
  Random& random = builder.random();
  std::array<DrawCell, 3> rooms;
  if (returns()) {
    const int count = random.Integer(config_.rooms_min, config_.rooms_max);
    builder.world().rooms = count;
    const auto walls = DrawRooms(count, config_.outer_walls, random);
    if (!walls) return false;
    builder.AddWalls(*walls);
  } else {
    const ThreeRooms three(random);
    builder.world().rooms = 3;
    builder.AddWalls(three.walls);
    rooms = three.rooms;
  }
  if (!builder.PlaceAgent(0, DrawAnywhere())) return false;
  builder.DrawBoxSizes();
  if (!builder.PlaceBoxes(DrawAnywhere())) return false;
  for (int ramp = 0; ramp < config_.ramps; ++ramp) {
    if (!builder.PlaceRamp(ramp, rooms[ramp])) return false;
  }
  auto& order = builder.world().lock_order;
  std::iota(order.begin(), order.end(), 0);
  for (int i = builder.world().num_boxes - 1; i > 0; --i) {
    std::swap(order[i], order[random.Integer(0, i)]);
  }
  return true;
}

void LockTask::Begin(const View& view) {
  state_ = State();
  state_.displacement.Begin(view);
  const auto agent = view.simulation.position(0);
  state_.home = {agent[0], agent[1]};
  state_.target = NextTarget(view);
}

bool LockTask::MayLock(const View& view, int object) const {
  if (returns() || object >= view.boxes() || view.episode.locks[object].locked) return true;
  return object == state_.target.box;
}

LockTask::Target LockTask::NextTarget(const View& view) const {
  const auto agent = view.simulation.position(0);
  Target next;
  for (int i = 0; i < view.boxes(); ++i) {
    const int box = view.episode.world.lock_order[i];
    if (view.episode.locks[box].locked) continue;
    const auto at = view.position(box);  // from corner to corner, as the original measures
    const double distance = std::hypot(at[0] - agent[0], at[1] - agent[1]);
    if (next.box == kNothing || (returns() && distance < next.distance)) next = {box, distance};
  }
  return next;
}

double LockTask::ApproachReward(const Target& target, double home_distance) const {
  const Target& last = state_.target;
  if (last.box == kNothing && target.box == kNothing) {
    return returns() ? state_.home_distance - home_distance : 0.0;
  }
  if (target.box == last.box) return last.distance - target.distance;
  // Locking covers what was left of the way; unlocking takes it back.
  const bool locked_it = last.box != kNothing && state_.locked[last.box];
  return locked_it ? last.distance : -target.distance;
}

void LockTask::Judge(const View& view, const Verdict& verdict) {
  double reward = 0.0;
  int num_locked = 0;
  for (int i = 0; i < view.boxes(); ++i) {
    const bool locked = view.episode.locks[i].locked;
    if (locked && !state_.locked[i]) reward += kLockReward;
    if (!locked && state_.locked[i]) reward -= kUnlockPenalty;
    state_.locked[i] = locked;
    num_locked += locked;
  }
  const auto agent = view.simulation.position(0);
  const double home_distance = std::hypot(agent[0] - state_.home[0], agent[1] - state_.home[1]);
  const Target target = NextTarget(view);
  reward += kApproachReward * ApproachReward(target, home_distance);
  state_.target = target;
  state_.home_distance = home_distance;

  const bool complete = target.box == kNothing && (!returns() || home_distance <= kReturnRadius);
  if (complete) reward += kCompleteReward;
  ++state_.steps;
  state_.complete_steps += complete;
  verdict.reward[0] = static_cast<float>(reward);
  verdict.statistics[0] =
      static_cast<float>(state_.complete_steps) / static_cast<float>(state_.steps);
  verdict.statistics[1] = static_cast<float>(num_locked);
  verdict.statistics[2] = static_cast<float>(state_.displacement.Largest(view, 0, view.boxes()));
}

}  // namespace

std::unique_ptr<Task> MakeLockTask(const Config& config) {
  return std::make_unique<LockTask>(config);
}

}  // namespace srl::hide_and_seek
