// Object counting: an agent that cannot move watches boxes slide away behind walls to its left and
// right, and its memory is asked how many went where (Baker et al., 2020, section 6). The paper
// gives no more than that; the layout and the times are this file's.
#include <algorithm>
#include <array>
#include <cmath>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/task.h"

namespace srl::hide_and_seek {
namespace {

constexpr double kMiddle = kFloorSize / 2;
constexpr double kAgentY = 5.0;  // it looks along -y, through a gap between two walls
constexpr int kWallLine = 17;    // cells; the walls and the gap are symmetrical
constexpr int kGapStart = 12;
constexpr int kGapEnd = 17;
constexpr double kFirstLane = 3.1;  // y of the nearest box, which is also the first to leave
constexpr double kLaneDistance = 0.53;
constexpr int kFirstDeparture = 5;  // steps
constexpr int kDepartureInterval = 5;
constexpr double kSpeed = 2.0;  // m/s
constexpr double kGone = 2.0;   // from the middle; from there on no part of a box can be seen
constexpr double kMass = 1.0;
constexpr double kFriction = 0.2 * 50.0 * kMass;  // of a sliding box: coefficient times weight
constexpr double kStepSeconds = 0.075;

class ObjectCounting final : public Task {
 public:
  using Task::Task;

  bool Lay(WorldBuilder& builder) const override {
    std::vector<GridWall> walls = OuterWalls();
    walls.push_back({false, kWallLine, 0, kGapStart, false});
    walls.push_back({false, kWallLine, kGapEnd, kGridSize - 1, false});
    builder.AddWalls(walls);
    World& world = builder.world();
    builder.DrawBoxSizes();
    world.corners[0] = {kMiddle - kAgentRadius, kAgentY - kAgentRadius};
    for (int box = 0; box < world.num_boxes; ++box) {
      const double y = kFirstLane - kLaneDistance * box;
      world.corners[1 + box] = {kMiddle - kCubeHalf[0], y - kCubeHalf[1]};
      world.goes_left[box] = builder.random().Coin(0.5);
    }
    return true;
  }

  // How many boxes have gone to the agent's left and right: what a classifier is to learn. It is
  // for learning alone, no policy may see it.
  std::vector<Field> Fields() const override { return {NumbersField("count_target", {2})}; }

  std::vector<std::string> Statistics() const override { return {"gone_left", "gone_right"}; }

  void Begin(const View& /*view*/) override {}

  bool Rests(const View& /*view*/, int /*agent*/) const override { return true; }

  void Drive(const Episode& episode, Simulation* simulation) const override {
    for (int box = 0; box < episode.world.num_boxes; ++box) {
      const bool leaves = episode.step >= kFirstDeparture + kDepartureInterval * box;
      const double way = Side(episode.world, box);
      // The velocity reaches the desired one at the step's end, as far as friction is known.
      const double velocity = simulation->velocity(1 + box)[0];
      const bool going = leaves && way * (simulation->center(1 + box)[0] - kMiddle) < kGone;
      const double force = way * kFriction + kMass * (way * kSpeed - velocity) / kStepSeconds;
      simulation->PushAlongX(box, going ? force : 0.0);
    }
  }

  void Judge(const View& view, const Verdict& verdict) override {
    verdict.reward[0] = 0.0f;
    const auto [left, right] = Count(view);
    verdict.statistics[0] = left;
    verdict.statistics[1] = right;
  }

  void Observe(const View& view, int /*agent*/, std::span<float* const> rows) const override {
    const auto counts = Count(view);
    std::copy(counts.begin(), counts.end(), rows[0]);
  }

  void Inspect(const View& view,
               std::map<std::string, std::vector<double>>* numbers) const override {
    const auto& left = view.episode.world.goes_left;
    (*numbers)["goes_left"].assign(left.begin(), left.begin() + view.boxes());
  }

  void Serialize(Archive& /*archive*/) override {}

 private:
  // Along which direction of x a box leaves; the agent looks along -y, so +x is to its left.
  static double Side(const World& world, int box) { return world.goes_left[box] ? 1.0 : -1.0; }

  std::array<float, 2> Count(const View& view) const {
    std::array<float, 2> counts = {};
    for (int box = 0; box < view.boxes(); ++box) {
      const double x = view.center(box)[0] - kMiddle;
      if (std::abs(x) >= kGone) ++counts[x > 0.0 ? 0 : 1];
    }
    return counts;
  }
};

}  // namespace

std::unique_ptr<Task> MakeObjectCounting(const Config& config) {
  return std::make_unique<ObjectCounting>(config);
}

}  // namespace srl::hide_and_seek
