// Hide and seek itself.
#include <algorithm>
#include <numeric>
#include <utility>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/task.h"
#include "envs/hide_and_seek/tasks/food.h"
#include "envs/hide_and_seek/tasks/statistics.h"

namespace srl::hide_and_seek {
namespace {

constexpr double kOutOfBoundsReward = -10.0;
constexpr int kQuadrantSize = 15;                          // cells
constexpr int kQuadrantStart = kGridSize - kQuadrantSize;  // in x; in y the quadrant is the lower
constexpr int kFoodColumns = 4;
constexpr double kFoodMiddle = 0.25;  // share of the floor's side

const DrawCell kInQuadrant = DrawWithin({kQuadrantStart, 1}, {kGridSize - 1, kQuadrantSize - 1});

// In one of the three rectangles around the quadrant, each as likely.
Cell DrawOutsideQuadrant(Cell count, Random& random) {
  const int rectangle = random.Integer(0, 2);
  const bool left = rectangle < 2;
  const bool below = rectangle == 0;
  const Cell low = {left ? 1 : kQuadrantStart, below ? 1 : kQuadrantSize};
  const Cell high = {left ? kQuadrantStart - 1 : kGridSize - 1,
                     below ? kQuadrantSize - 1 : kGridSize - 1};
  return DrawWithin(low, high)(count, random);
}

std::vector<GridWall> DrawQuadrant(double door_dropout, Random& random) {
  std::vector<GridWall> walls = OuterWalls();
  const int side = kQuadrantStart;
  const std::array<GridWall, 2> inner = {
      GridWall{true, side, 0, kQuadrantSize, false, {0, kQuadrantSize}, {}},
      GridWall{false, kQuadrantSize, side, kGridSize - 1, false, {side, kGridSize - 1}, {}}};
  const int without_door = random.Coin(door_dropout) ? random.Integer(0, 1) : -1;
  for (int i = 0; i < 2; ++i) {
    if (i == without_door) {
      walls.push_back(inner[i]);
    } else {
      for (GridWall& piece : CutDoor(inner[i], random)) walls.push_back(std::move(piece));
    }
  }
  return walls;
}

class Game final : public Task {
 public:
  using Task::Task;

  bool Lay(WorldBuilder& builder) const override;

  std::vector<Field> Fields() const override {
    if (!has_food()) return {};
    const int count = config_.food.count;
    return {NumbersField("food_obs", {count, kFoodColumns}), MaskField("mask_af_obs", count),
            MaskField("mask_af_obs_spoof", count)};
  }

  std::vector<std::string> Statistics() const override {
    std::vector<std::string> names(kStatisticNames.begin(), kStatisticNames.end());
    if (has_food()) names.insert(names.end(), {"food_eaten_prep", "food_eaten"});
    return names;
  }

  void Begin(const View& view) override {
    statistics_.Begin(view);
    if (has_food()) food_.Begin(view);
  }

  bool Rests(const View& view, int agent) const override {
    return config_.team(agent) == 1 && config_.prepares(view.episode.step);
  }

  void Judge(const View& view, const Verdict& verdict) override;

  void Observe(const View& view, int agent, std::span<float* const> rows) const override;

  void Inspect(const View& view,
               std::map<std::string, std::vector<double>>* numbers) const override;

  void Serialize(Archive& archive) override {
    archive.Value(statistics_);
    archive.Value(food_);
  }

 private:
  bool full() const { return config_.scenario == Scenario::kFull; }
  int grid() const { return config_.grid_size(); }
  bool has_food() const { return config_.food.count > 0; }
  bool PlaceAgents(WorldBuilder& builder) const;
  bool PlaceFood(WorldBuilder& builder) const;

  bool OutOfBounds(const View& view, int thing) const;
  // What hiding and seeking is worth to each agent.
  std::array<double, kMaxAgents> SightReward(const View& view) const;
  void ShareInTeams(std::array<double, kMaxAgents>* reward) const;
  // Gives the number of agents that are out of bounds.
  int RewardSight(const View& view, std::span<float> reward) const;
  void RewardFood(const View& view, const Verdict& verdict);

  GameStatistics statistics_;
  Food food_;
};

bool Game::Lay(WorldBuilder& builder) const {
  Random& random = builder.random();
  if (full()) {
    const int rooms = random.Integer(config_.rooms_min, config_.rooms_max);
    builder.world().rooms = rooms;
    const auto walls = DrawRooms(rooms, config_.outer_walls, random, grid());
    if (!walls) return false;
    builder.AddWalls(*walls);
  } else {
    builder.AddWalls(DrawQuadrant(config_.door_dropout, random));
  }
  if (!PlaceAgents(builder)) return false;
  builder.DrawBoxSizes();
  if (!builder.PlaceBoxes(full() ? DrawAnywhere(grid()) : kInQuadrant)) return false;
  for (int ramp = 0; ramp < config_.ramps; ++ramp) {
    if (!builder.PlaceRamp(ramp, DrawAnywhere(grid()))) return false;
  }
  return PlaceFood(builder);
}

bool Game::PlaceAgents(WorldBuilder& builder) const {
  Cell first;  // of the team
  for (int agent = 0; agent < config_.agents(); ++agent) {
    const bool hider = config_.team(agent) == 0;
    const bool leads = agent == 0 || agent == config_.hiders;
    const double together = hider ? config_.hiders_together : config_.seekers_together;
    DrawCell draw = DrawAnywhere(grid());
    if (full() && !leads && together > 0.0) draw = DrawNear(first, together, grid());
    if (!full() && hider && !config_.hiders_anywhere) draw = kInQuadrant;
    if (!full() && !hider) draw = DrawOutsideQuadrant;
    const auto cell = builder.PlaceAgent(agent, draw);
    if (!cell) return false;
    if (leads) first = *cell;
  }
  return true;
}

bool Game::PlaceFood(WorldBuilder& builder) const {
  const FoodConfig& food = config_.food;
  const int cluster_size = food.count / food.clusters;
  DrawCell draw_first = food.centered ? DrawInTheMiddle(kFoodMiddle, grid()) : DrawAnywhere(grid());
  if (!full()) draw_first = kInQuadrant;
  Cell first;
  for (int i = 0; i < food.count; ++i) {
    const bool leads = i % cluster_size == 0 || food.together == 0.0;
    Point corner;
    const auto cell =
        builder.Place({kFoodSize, kFoodSize},
                      leads ? draw_first : DrawNear(first, food.together, grid()), &corner);
    if (!cell) return false;
    if (leads) first = *cell;
    builder.world().food[i] = MarkAt(corner, kFoodSize, config_.floor_size);
  }
  return true;
}

bool Game::OutOfBounds(const View& view, int thing) const {
  const auto [low, high] = config_.allowed_range();
  const auto center = view.simulation.center(thing);
  return center[0] < low || center[0] > high || center[1] < low || center[1] > high;
}

std::array<double, kMaxAgents> Game::SightReward(const View& view) const {
  const auto& sees = view.episode.sees;
  std::array<double, kMaxAgents> reward = {};
  std::fill_n(reward.begin(), config_.hiders, 1.0);
  std::fill_n(reward.begin() + config_.hiders, config_.seekers, -1.0);
  for (int seeker = config_.hiders; seeker < view.agents(); ++seeker) {
    for (int hider = 0; hider < config_.hiders; ++hider) {
      if (!sees[seeker][hider]) continue;
      reward[hider] = -1.0;
      reward[seeker] = 1.0;
    }
  }
  if (config_.reward_type == RewardType::kJointMean) ShareInTeams(&reward);
  if (config_.reward_type == RewardType::kJointZeroSum) {
    std::fill_n(reward.begin(), config_.hiders, view.episode.seen ? -1.0 : 1.0);
    std::fill_n(reward.begin() + config_.hiders, config_.seekers, view.episode.seen ? 1.0 : -1.0);
  }
  return reward;
}

void Game::ShareInTeams(std::array<double, kMaxAgents>* reward) const {
  const auto share = [](auto first, auto last) {
    std::fill(first, last, std::accumulate(first, last, 0.0) / static_cast<double>(last - first));
  };
  const auto seekers = reward->begin() + config_.hiders;
  share(reward->begin(), seekers);
  share(seekers, seekers + config_.seekers);
}

int Game::RewardSight(const View& view, std::span<float> reward) const {
  bool all_out = false;
  if (config_.penalize_objects_out) {
    for (int i = 0; i < view.objects(); ++i) all_out |= OutOfBounds(view, view.agents() + i);
  }
  const auto sight = SightReward(view);
  int num_out = 0;
  for (int agent = 0; agent < view.agents(); ++agent) {
    const bool out = all_out || OutOfBounds(view, agent);
    reward[agent] = static_cast<float>(out ? kOutOfBoundsReward : sight[agent]);
    num_out += out;
  }
  return num_out;
}

void Game::Judge(const View& view, const Verdict& verdict) {
  int num_out = 0;
  if (config_.prepares(view.episode.step - 1)) {
    std::fill(verdict.reward.begin(), verdict.reward.end(), 0.0f);
  } else {
    num_out = RewardSight(view, verdict.reward);
  }
  statistics_.Update(view, num_out, verdict.statistics);
  if (has_food()) RewardFood(view, verdict);
}

void Game::RewardFood(const View& view, const Verdict& verdict) {
  auto eaten = food_.Eat(view);
  if (config_.food.reward == RewardType::kJointMean) ShareInTeams(&eaten);
  for (int agent = 0; agent < view.agents(); ++agent) {
    verdict.reward[agent] += static_cast<float>(config_.food.reward_scale * eaten[agent]);
  }
  food_.Look(view);
  verdict.statistics[kNumStatistics + 1] = static_cast<float>(food_.eaten());
  if (verdict.statistics[kMainSteps] <= 1.0f) {
    verdict.statistics[kNumStatistics] = verdict.statistics[kNumStatistics + 1];
  }
}

void Game::Observe(const View& view, int agent, std::span<float* const> rows) const {
  if (!has_food()) return;
  float* food = rows[0];
  for (int i = 0; i < config_.food.count; ++i) {
    for (double value : FoodPosition(view.episode.world, i)) *food++ = static_cast<float>(value);
    *food++ = static_cast<float>(food_.health(i));
    rows[1][i] = food_.sees(agent, i);
    rows[2][i] = 1.0f;
  }
}

void Game::Inspect(const View& view, std::map<std::string, std::vector<double>>* numbers) const {
  if (!has_food()) return;
  std::vector<double>& food = (*numbers)["food"];
  for (int i = 0; i < config_.food.count; ++i) {
    for (double value : FoodPosition(view.episode.world, i)) food.push_back(value);
    food.push_back(food_.health(i));
  }
  (*numbers)["food_health"] = {static_cast<double>(config_.food.health)};
}

}  // namespace

std::unique_ptr<Task> MakeGame(const Config& config) { return std::make_unique<Game>(config); }

}  // namespace srl::hide_and_seek
