// The transfer tasks in situations made by hand.
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/hide_and_seek_game.h"

namespace srl::hide_and_seek {
namespace {

bool Is(double value, double expected, double tolerance = 1e-5) {
  return std::abs(value - expected) < tolerance;
}

// Between the corners of the agent and a box, which is what is rewarded.
double BoxDistance(const Game& game, int box) {
  const Numbers agent = game.Get("agents_qpos");
  const Numbers boxes = game.Get("boxes_qpos");
  return std::hypot(boxes[4 * box] - agent[0], boxes[4 * box + 1] - agent[1]);
}

TEST(TransferTasksHaveTheColumnsOfTheFullGame) {
  const Specs full = HideAndSeek::MakeSpecs(Options(Full(true)));
  for (const char* name : kTaskNames) {
    if (name == std::string("hide_and_seek")) continue;
    const Specs specs = HideAndSeek::MakeSpecs(Options(TaskSettings(name)));
    CHECK(specs.agents == (std::vector<std::string>{"hider_0"}));
    CHECK(specs.action.nvec == full.action.nvec);
    for (int field = kObservationSelf; field <= kMaskAbObsSpoof; ++field) {
      CHECK(specs.observation[field].name == full.observation[field].name);
      const std::vector<int>& shape = specs.observation[field].space.shape;
      CHECK(shape.back() == full.observation[field].space.shape.back() || shape.size() == 1);
    }
    Game game(TaskSettings(name));
    CHECK(game.Observed(kMaskAaObs, 0) == 0.0f);
    CHECK(game.Observed("mask_aa_obs_spoof", 0) == 0.0f);
    game.Rest();
    CHECK(game.Observed(kObservationSelf, 0, 9) == 0.0f);  // no preparation
    const bool hider = name != std::string("blueprint") && name != std::string("shelter");
    CHECK(game.Observed(kObservationSelf, 0, 8) == (hider ? 1.0f : 0.0f));
  }
}

TEST(LockAndReturnRewardsApproachLockAndReturn) {
  Game game(TaskSettings("lock_and_return"));
  CHECK(game.specs().max_episode_steps == 120);
  game.Inject("walls", {});
  game.Put("boxes", 0, 1.0, 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  double before = BoxDistance(game, 0);
  for (int i = 0; i < 3; ++i) {
    game.Step({{.x = 7}});
    CHECK(Is(game.reward()[0], 0.5 * (before - BoxDistance(game, 0))));
    before = BoxDistance(game, 0);
  }
  game.Put("agents", 0, 0.55, 0.0, kFacingEast);
  game.Rest();  // takes in where it was put
  before = BoxDistance(game, 0);
  game.Step({{.lock = 1}});
  CHECK(game.Get("locked_by", 0) == 0);
  CHECK(Is(game.reward()[0], 5.0 + 0.5 * before));
  CHECK(game.Statistic("num_box_lock") == 1.0f && game.Statistic("complete") == 0.0f);
  game.Put("agents", 0, 0.3, 0.0, kFacingWest);
  game.Rest();
  CHECK(Is(game.reward()[0], 0.5 * 0.25));  // nearer to where it began
  game.Put("agents", 0, 0.0, 0.05, kFacingWest);
  game.Rest();
  CHECK(Is(game.reward()[0], 0.5 * 0.25 + 1.0));
  game.Rest();
  CHECK(Is(game.reward()[0], 1.0) && game.Statistic("complete") > 0.0f);
  game.Put("agents", 0, 0.55, 0.0, kFacingEast);
  game.Rest();  // seen and near without pressing: from the next step on it is unlocked
  game.Rest();
  CHECK(game.Get("locked_by", 0) == -1);
}

TEST(UnlockingCostsWhatLockingGave) {
  Game game(TaskSettings("lock_and_return"));
  game.Inject("walls", {});
  game.Put("boxes", 0, 0.45, 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  const double distance = BoxDistance(game, 0);
  game.Step({{.lock = 1}});
  CHECK(Is(game.reward()[0], 5.0 + 0.5 * distance + 1.0));  // it never left its start
  game.Rest();
  CHECK(Is(game.reward()[0], -5.0 - 0.5 * BoxDistance(game, 0)));
}

TEST(SequentialLockHeedsTheHiddenOrder) {
  Game game(TaskSettings("sequential_lock"));
  CHECK(game.Get("boxes").size() == 4 * 7 && game.Get("ramps").size() == 3 * 4);
  game.Inject("walls", {});
  game.Inject("lock_order", {2, 0, 1, 3});
  for (int i = 0; i < 4; ++i) game.Put("boxes", i, 3.0 * i, 0.0);
  for (int i = 0; i < 3; ++i) game.Put("ramps", i, 3.0 * i, 5.0);
  const auto press_at = [&game](int box) {
    game.Put("agents", 0, 3.0 * box - 0.45, 0.0, kFacingEast);
    game.Step({{.lock = 1}});
    return game.Get("locked_by", box) == 0;
  };
  CHECK(!press_at(0) && !press_at(1) && !press_at(3));
  const double before = BoxDistance(game, 2);
  CHECK(press_at(2));
  CHECK(Is(game.reward()[0], 5.0 + 0.5 * before));
  CHECK(!press_at(3) && press_at(0) && press_at(1));
  CHECK(game.Statistic("num_box_lock") == 3.0f);
  CHECK(press_at(3));
  const float complete = game.reward()[0];
  game.Step({{.lock = 1}});
  CHECK(Is(game.reward()[0], 1.0) && complete > 6.0f);
  // Ramps are locked without regard to the order.
  game.Put("agents", 0, 0.0, 4.55, kFacingEast + std::numbers::pi / 2);
  game.Step({{.lock = 1}});
  CHECK(game.Get("locked_by", 4) == 0);
}

TEST(SequentialLockPutsARampInEachOfThreeRooms) {
  Random random(3);
  const Config config{Options(TaskSettings("sequential_lock"))};
  for (int i = 0; i < 300; ++i) {
    const World world = DrawWorld(config, random);
    CHECK(world.rooms == 3 && world.num_walls == 6);
    const Wall& first = world.walls[4];
    const Wall& second = world.walls[5];
    const bool vertical = first.half_x < first.half_y;
    CHECK(vertical != (second.half_x < second.half_y));
    // Which room a ramp is in: beyond the first wall or on the side of the second, and there which.
    std::vector<int> rooms;
    for (int ramp = 0; ramp < 3; ++ramp) {
      const Point corner = world.corners[1 + 4 + ramp];
      const Point at = {corner.x + kRampHalf, corner.y + kRampHalf};
      const bool beyond = vertical ? at.x > first.x : at.y > first.y;
      const bool second_beyond = vertical ? second.x > first.x : second.y > first.y;
      const bool above = vertical ? at.y > second.y : at.x > second.x;
      rooms.push_back(beyond != second_beyond ? 0 : 1 + above);
    }
    CHECK(rooms == (std::vector<int>{0, 1, 2}));
  }
}

Game BlueprintWithOneSite() {
  Game game(TaskSettings("blueprint"));
  game.Inject("walls", {});
  game.Inject("sites", {3.0, 3.0});
  game.Put("agents", 0, -3.0, 0.0);
  for (int i = 0; i < 8; ++i) game.Put("boxes", i, 10.0, 2.0 * i);
  return game;
}

TEST(BlueprintEndsWhenEverySiteHasItsBox) {
  Game game = BlueprintWithOneSite();
  CHECK(game.Observed("mask_acs_obs", 0, 0) == 1.0f && game.Observed("mask_acs_obs", 0, 1) == 0.0f);
  const std::vector<double> corners = {3,    3,    0.25, 2.75, 2.75, 0.25, 2.75, 3.25,
                                       0.25, 3.25, 2.75, 0.25, 3.25, 3.25, 0.25};
  for (int i = 0; i < 15; ++i) {
    CHECK(game.Observed("construction_site_obs", 0, i) == static_cast<float>(corners[i]));
  }
  game.Rest();
  CHECK(!game.terminated(0) && game.reward()[0] < 0.0f);
  game.Put("boxes", 0, 3.0, 3.0, /*angle=*/0.5);  // near, but its corners are not
  game.Rest();
  CHECK(!game.terminated(0) && game.Statistic("sites_near") == 1.0f);
  game.Put("boxes", 0, 3.05, 3.0, std::numbers::pi / 2);
  game.Rest();
  CHECK(game.terminated(0) && game.Statistic("complete") == 1.0f);
  CHECK(game.reward()[0] > 2.5f && game.reward()[0] < 3.0f);
  game.Reset();
  CHECK(!game.terminated(0));
}

TEST(BlueprintNeedsAllItsSites) {
  Game game = BlueprintWithOneSite();
  game.Inject("sites", {3.0, 3.0, 1.0, 1.0});
  game.Inject("walls", {});
  game.Put("agents", 0, -3.0, 0.0);
  for (int i = 0; i < 8; ++i) game.Put("boxes", i, 10.0, 2.0 * i);
  game.Put("boxes", 3, 3.0, 3.0);
  game.Rest();
  CHECK(!game.terminated(0) && game.Statistic("sites_near") == 1.0f);
  game.Put("boxes", 5, 1.0, 1.0);
  game.Rest();
  CHECK(game.terminated(0) && game.reward()[0] > 5.5f);
}

TEST(BlueprintCostsTheSoftlySmallestDistances) {
  Game game = BlueprintWithOneSite();
  game.Put("boxes", 0, 3.6, 3.0);
  game.Rest();
  const Numbers boxes = game.Get("boxes");
  double mean = 0.0;
  for (const auto& [x, y] : {std::pair(2.75, 2.75), {2.75, 3.25}, {3.25, 2.75}, {3.25, 3.25}}) {
    double sum = 0.0;
    double weights = 0.0;
    for (int box = 0; box < 8; ++box) {
      for (const auto& [dx, dy] : {std::pair(-1, -1), {-1, 1}, {1, -1}, {1, 1}}) {
        const double distance =
            std::hypot(boxes[7 * box] + 0.25 * dx - x, boxes[7 * box + 1] + 0.25 * dy - y,
                       boxes[7 * box + 2] - 0.25);
        sum += distance * std::exp(-1.5 * distance);
        weights += std::exp(-1.5 * distance);
      }
    }
    mean += sum / weights / 4;
  }
  CHECK(Is(game.reward()[0], -0.05 * mean) && Is(game.Statistic("corner_distance"), mean, 1e-4));
}

TEST(ShelterCostsEachRayThatHitsTheCylinder) {
  Game game(TaskSettings("shelter"));
  game.Inject("cylinder", {3.0, 3.0, 0.8});
  game.Put("agents", 0, 20.0, 0.0);
  for (int i = 0; i < 8; ++i) game.Put("boxes", i, 30.0, 3.0 * i);
  game.Rest();
  CHECK(Is(game.reward()[0], -0.1) && game.Statistic("exposed") == 1.0f);
  // A cube on the border hides the rays that begin in it, and no others.
  game.Put("boxes", 7, 3.0, 0.2);
  game.Rest();
  const int hidden = static_cast<int>(std::lround(100 * (1 - game.Statistic("exposed"))));
  CHECK(hidden == 2 || hidden == 3);  // 0.224 apart, behind 0.5
  CHECK(Is(game.reward()[0], -0.001 * (100 - hidden)));
  CHECK(Is(game.Statistic("exposed_mean"), 1 - hidden / 200.0));
}

TEST(NothingEntersTheCylinder) {
  Game game(TaskSettings("shelter"));
  for (const double radius : {0.75, 1.0}) {
    game.Inject("cylinder", {3.0, 3.0, radius});
    for (int i = 0; i < 8; ++i) game.Put("boxes", i, 30.0, 3.0 * i);
    game.Put("agents", 0, 1.0, 3.0, kFacingEast);
    CHECK(Is(game.Observed(kLidar, 0, 0), 2.0 - radius));
    for (int i = 0; i < 30; ++i) game.Step({{.x = kEast}});
    CHECK(Is(game.Get("agents", 0), 3.0 - radius - 0.15, 0.03));
  }
}

TEST(BoxesToBeCountedAreSeenAndThenGone) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    Game game(TaskSettings("object_counting"), seed);
    const Numbers goes_left = game.Get("goes_left");
    const int left = static_cast<int>(std::accumulate(goes_left.begin(), goes_left.end(), 0.0));
    const Numbers start = game.Get("agents_qpos");
    std::vector<bool> seen(6, false);
    Random choice(seed);
    float last = 0.0f;
    for (int step = 0; step < 80; ++step) {
      for (int box = 0; box < 6; ++box) {
        const bool sees = game.Observed(kMaskAbObs, 0, box) == 1.0f;
        if (sees) seen[box] = true;
        const bool gone = std::abs(game.Get("boxes", 7 * box) - 3.0) >= 2.0;
        CHECK(!(sees && gone));
      }
      game.StepRandomly(choice);
      CHECK(game.reward()[0] == 0.0f);
      const float total = game.Observed("count_target", 0, 0) + game.Observed("count_target", 0, 1);
      CHECK(total >= last);
      last = total;
    }
    CHECK(game.Observed("count_target", 0, 0) == static_cast<float>(left));
    CHECK(last == 6.0f && seen == std::vector<bool>(6, true));
    CHECK(game.Statistic("gone_left") == static_cast<float>(left));
    // Nothing that it does moves it.
    const Numbers end = game.Get("agents_qpos");
    for (int i = 0; i < 4; ++i) CHECK(std::abs(end[i] - start[i]) < 1e-2);
  }
}

}  // namespace
}  // namespace srl::hide_and_seek
