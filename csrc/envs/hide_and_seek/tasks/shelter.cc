// Shelter: a cylinder is to be hidden behind boxes from rays that come from all around (Baker et
// al., 2020, section 6).
#include <array>

#include "envs/hide_and_seek/task.h"
#include "envs/hide_and_seek/tasks/statistics.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kRaysPerSide = 25;
constexpr int kRays = 4 * kRaysPerSide;
constexpr double kRayCost = 0.001;
constexpr double kMinDiameter = 1.5;
constexpr double kMaxDiameter = 2.0;
constexpr double kCylinderMiddle = 0.7;  // of the floor's side, where the cylinder may stand
constexpr double kBorder = 1.01 * kCellSize;

using Position = std::array<double, 3>;

// Evenly along the four sides, just inside the walls, on the floor.
std::array<Position, kRays> RayStarts() {
  constexpr double kEnd = kFloorSize - kBorder;
  std::array<Position, kRays> starts;
  for (int i = 0; i < kRaysPerSide; ++i) {
    const double along = i * (kEnd - kBorder) / kRaysPerSide;
    starts[4 * i] = {kBorder + along, kBorder, 0.0};
    starts[4 * i + 1] = {kEnd, kBorder + along, 0.0};
    starts[4 * i + 2] = {kEnd - along, kEnd, 0.0};
    starts[4 * i + 3] = {kBorder, kEnd - along, 0.0};
  }
  return starts;
}

class Shelter final : public Task {
 public:
  using Task::Task;

  bool Lay(WorldBuilder& builder) const override {
    builder.AddWalls(OuterWalls());
    World& world = builder.world();
    const double diameter = builder.random().Uniform(kMinDiameter, kMaxDiameter);
    Point corner;
    if (!builder.Place({diameter, diameter}, DrawInTheMiddle(kCylinderMiddle), &corner)) {
      return false;
    }
    world.cylinder_radius = diameter / 2;
    world.cylinder = {corner.x + diameter / 2, corner.y + diameter / 2};
    if (!builder.PlaceAgent(0, DrawAnywhere())) return false;
    builder.DrawBoxSizes();
    return builder.PlaceBoxes(DrawAnywhere());
  }

  std::vector<std::string> Statistics() const override {
    return {"exposed", "exposed_mean", "num_box_lock", "max_box_move"};
  }

  void Begin(const View& view) override {
    state_ = State();
    state_.displacement.Begin(view);
  }

  void Judge(const View& view, const Verdict& verdict) override {
    static const std::array<Position, kRays> starts = RayStarts();
    int hits = 0;
    for (const Position& start : starts) hits += CylinderInSight(view.scene, start);
    ++state_.steps;
    state_.hits += hits;
    int num_locked = 0;
    for (int i = 0; i < view.boxes(); ++i) num_locked += view.episode.locks[i].locked;
    verdict.reward[0] = static_cast<float>(-kRayCost * hits);
    verdict.statistics[0] = static_cast<float>(hits) / kRays;
    verdict.statistics[1] =
        static_cast<float>(state_.hits) / static_cast<float>(kRays * state_.steps);
    verdict.statistics[2] = static_cast<float>(num_locked);
    verdict.statistics[3] = static_cast<float>(state_.displacement.Largest(view, 0, view.boxes()));
  }

  void Serialize(Archive& archive) override { archive.Value(state_); }

 private:
  struct State {
    Displacement displacement;
    int steps = 0;
    int hits = 0;
  };

  State state_;
};

}  // namespace

std::unique_ptr<Task> MakeShelter(const Config& config) {
  return std::make_unique<Shelter>(config);
}

}  // namespace srl::hide_and_seek
