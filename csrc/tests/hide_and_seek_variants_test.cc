// Hide and seek with other options: locks, grips, rewards, food and numbers of things.
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "envs/hide_and_seek/layout.h"
#include "tests/check.h"
#include "tests/hide_and_seek_game.h"

namespace srl::hide_and_seek {
namespace {

std::int64_t Count(int value) { return value; }
std::string Text(const char* text) { return text; }

std::string Refusal(const Settings& settings) {
  return MessageOf([&] { Config{Options(settings)}; });
}

bool Says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

TEST(HideAndSeekRefusesBadOptions) {
  CHECK(Says(Refusal({{"scenario", Text("cube")}}), "'cube', expected 'quadrant' or 'full'"));
  CHECK(Says(Refusal({{"hiders", Count(4)}}), "expected 1 to 3"));
  CHECK(Says(Refusal({{"prep_fraction", 1.5}}), "expected 0 to 1"));
  CHECK(Says(Refusal({{"hider", Count(1)}}), "unknown option 'hider'"));
  CHECK(Says(Refusal({{"lock_type", Text("no_lock")}}), "'all_lock_team_specific'"));
  CHECK(Says(Refusal({{"food_reward", Text("joint_zero_sum")}, {"food", Count(1)}}), "'selfish'"));
  CHECK(Refusal({{"horizon", Count(100)}, {"boxes_max", Count(5)}}) == "");
}

TEST(OptionsThatMeanNothingAreRefused) {
  CHECK(Says(Refusal({{"rooms_max", Count(3)}}), "'rooms_max' means nothing in scenario"));
  CHECK(Says(Refusal({{"scenario", Text("full")}, {"door_dropout", 0.1}}), "'door_dropout'"));
  CHECK(Says(Refusal({{"food_radius", 1.0}}), "without food"));
  CHECK(Says(Refusal({{"ramps", Count(0)}, {"lock_ramps", true}}), "without ramps"));
  CHECK(Says(Refusal({{"task", Text("shelter")}, {"seekers", Count(1)}}), "in task 'shelter'"));
  CHECK(Says(Refusal({{"task", Text("shelter")}, {"boxes_max", Count(4)}}), "'boxes_max'"));
  CHECK(Says(Refusal({{"food", Count(3)}, {"food_clusters", Count(2)}}), "a divisor"));
  CHECK(Says(Refusal({{"boxes_max", Count(2)}, {"boxes_min", Count(3)}}), "expected 1 to 2"));
  CHECK(Says(Refusal({{"elongated_min", Count(3)}, {"elongated_max", Count(2)}}), "expected 0"));
  const std::string crowded =
      MessageOf([] { HideAndSeek game(Options({{"food", Count(16)}, {"food_together", 0.2}})); });
  CHECK(Says(crowded, "ask for fewer things"));
}

TEST(ObservationsFollowTheNumbersOfThings) {
  const auto shape = [](const Settings& settings, FieldIndex field) {
    return HideAndSeek::MakeSpecs(Options(settings)).observation[field].space.shape;
  };
  const Settings boxes = {{"boxes_max", Count(4)}, {"boxes_min", Count(1)}, {"lock_ramps", true}};
  CHECK(shape(boxes, kBoxObs) == (std::vector<int>{4, 12}));
  CHECK(shape(boxes, kRampObs) == (std::vector<int>{1, 12}));
  const Settings elongated = {{"elongated_max", Count(1)}, {"ramps", Count(2)}};
  CHECK(shape(elongated, kBoxObs) == (std::vector<int>{2, 15}));
  CHECK(shape(elongated, kRampObs) == (std::vector<int>{2, 12}));
  // Without ramps there is one row of zeros, and a mask that says that there is nothing.
  Game game({{"ramps", Count(0)}});
  CHECK(game.specs().observation[kRampObs].space.shape == (std::vector<int>{1, 9}));
  for (int column = 0; column < 9; ++column) CHECK(game.Observed(kRampObs, 0, column) == 0.0f);
  CHECK(game.Observed(kMaskArObs, 0) == 0.0f && game.Observed("mask_ar_obs_spoof", 0) == 0.0f);
  CHECK(game.Get("ramps").empty());
}

// The hider west and the seeker east of box 0, both near it and facing it; seekers may act.
void PutBothAtBox(Game& game) {
  game.Clear();
  game.Inject("step", {100});
  game.Put("boxes", 0, 0.45, 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  game.Put("agents", 1, 0.9, 0.0, kFacingWest);
}

double Press(Game& game, int hider, int seeker) {
  game.Step({{.lock = hider}, {.lock = seeker}});
  return game.Get("locked_by", 0);
}

TEST(AnyLockIsLockedByAnyoneAndOpenedWhenNobodyPresses) {
  Game game(With(Duel(), {{"lock_type", Text("any_lock")}}));
  PutBothAtBox(game);
  CHECK(Press(game, 1, 0) == 0);
  CHECK(Press(game, 0, 1) == 0);  // the seeker's pressing keeps it
  CHECK(Press(game, 0, 0) == -1);
  CHECK(Press(game, 0, 1) == 1);
}

TEST(AllLockNeedsEverybodyNearby) {
  Game game(With(Duel(), {{"lock_type", Text("all_lock")}}));
  PutBothAtBox(game);
  CHECK(Press(game, 1, 0) == -1);
  CHECK(Press(game, 0, 1) == -1);
  CHECK(Press(game, 1, 1) >= 0);
  CHECK(Press(game, 1, 0) == -1);
  game.Put("agents", 1, -3.0, 0.0);
  CHECK(Press(game, 1, 0) == 0);
}

TEST(AnyLockSpecificIsTheLockersAlone) {
  Game game(With(Duel(), {{"lock_type", Text("any_lock_specific")}}));
  PutBothAtBox(game);
  CHECK(Press(game, 1, 0) == 0);
  game.Put("agents", 0, -3.0, 0.0);
  CHECK(Press(game, 0, 0) == 0);
  CHECK(Press(game, 0, 1) == 0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  CHECK(Press(game, 0, 1) == 1);  // it passes to the one who presses
  CHECK(Press(game, 0, 1) == 1);
  CHECK(Press(game, 0, 0) == -1);
}

TEST(UnseenThingsAreGrabbedAndLockedWhereThatIsAllowed) {
  for (const bool allowed : {false, true}) {
    Game game(With(Duel(), {{"grab_out_of_vision", allowed}, {"lock_out_of_vision", allowed}}));
    PutBothAtBox(game);
    game.Put("agents", 0, 0.0, 0.0, kFacingWest);
    game.Put("agents", 1, -3.0, 0.0);
    game.Step({{.grab = 1, .lock = 1}, {}});
    CHECK(game.Get("grabbed", 0) == (allowed ? 0 : -1));
    CHECK(game.Get("locked_by", 0) == (allowed ? 0 : -1));
  }
}

TEST(ExclusiveGripsGoToTheNearest) {
  for (const bool exclusive : {false, true}) {
    Game game(With(Duel(), {{"grab_exclusive", exclusive}}));
    PutBothAtBox(game);
    game.Put("agents", 1, 0.93, 0.0, kFacingWest);  // a little farther than the hider
    game.Step({{.grab = 1}, {.grab = 1}});
    CHECK(game.Get("grabbed") == (Numbers{0, exclusive ? -1.0 : 0.0}));
    // With something else in reach, it takes that.
    game.Put("boxes", 1, 1.0, -0.49);
    game.Put("agents", 1, 0.93, 0.0, kFacingWest + std::numbers::pi / 4);
    game.Step({{.grab = 1}, {.grab = 1}});
    CHECK(game.Get("grabbed") == (Numbers{0, exclusive ? 1.0 : 0.0}));
  }
}

TEST(SelectiveGripsNameTheObject) {
  Game game(With(Duel(), {{"grab_selective", true}}));
  CHECK(game.specs().action.nvec == (std::vector<int>{11, 11, 11, 2, 2, 2, 2, 2, 2}));
  const auto grabs = [&game](int box0, int box1, int ramp1) {
    game.Inject("walls", {});
    game.Inject("step", {100});
    game.Put("boxes", 0, -0.05, -0.45);
    game.Put("boxes", 1, 0.48, 0.0);
    game.Put("boxes", 2, 9.0, 0.0);
    game.Put("ramps", 0, 9.0, 5.0);
    game.Put("ramps", 1, -0.47, 0.1);
    game.Put("agents", 0, 0.0, 0.0, kFacingEast - std::numbers::pi / 4);
    game.Put("agents", 1, 5.0, 5.0);
    game.StepNumbers({5, 5, 5, box0, box1, 0, 0, ramp1, 0, 5, 5, 5, 0, 0, 0, 0, 0, 0});
    return game.Get("grabbed", 0);
  };
  game.Inject("box_sizes", Numbers(9, 0.5));
  CHECK(grabs(1, 1, 0) == 0);  // the nearest of those that are wanted
  CHECK(grabs(0, 1, 0) == 1);
  CHECK(grabs(0, 0, 0) == -1);
  CHECK(grabs(0, 0, 1) == -1);  // behind the agent
}

TEST(RewardTypesShareWhatTeamsGet) {
  const auto reward = [](const char* type) {
    Game game(
        With(Duel(), {{"hiders", Count(2)}, {"seekers", Count(2)}, {"reward_type", Text(type)}}));
    game.Clear();
    game.Inject("step", {100});
    game.Put("agents", 0, 2.0, 0.0);
    game.Put("agents", 2, 0.0, 0.0, kFacingEast);  // sees the first hider, and nobody else does
    game.Rest();
    return game.reward();
  };
  CHECK(reward("selfish") == (std::vector{-1.0f, 1.0f, 1.0f, -1.0f}));
  CHECK(reward("joint_mean") == (std::vector{0.0f, 0.0f, 0.0f, 0.0f}));
  CHECK(reward("joint_zero_sum") == (std::vector{-1.0f, -1.0f, 1.0f, 1.0f}));
}

TEST(AStepThatBeginsInThePreparationBelongsToIt) {
  // 0.4 of 81 steps are 32.4: the seekers rest in the steps 0 to 32, which are 33.
  Game game({{"horizon", Count(81)}, {"hiders", Count(1)}, {"seekers", Count(1)}});
  game.Put("agents", 1, 3.0, 5.0);
  for (int step = 1; step <= 34; ++step) {
    game.Step({{}, {.x = kEast}});
    CHECK((game.Get("agents", 4) > 3.01) == (step > 33));
    CHECK((game.reward()[0] == 0.0f) == (step <= 33));
  }
}

TEST(LidarIsCompressedOnRequest) {
  Game plain(Full(true), 5);
  Game compressed(With(Full(true), {{"lidar_scale", 2.0}}), 5);
  for (int ray = 0; ray < kLidarRays; ++ray) {
    const double distance = plain.Observed(kLidar, 0, ray);
    CHECK(std::abs(compressed.Observed(kLidar, 0, ray) - 2.0 * std::tanh(distance / 2.0)) < 1e-6);
  }
}

// One food before the hider's eyes, and nobody who looks.
Settings FoodSettings() {
  return With(Duel(),
              {{"food", Count(1)}, {"food_health", Count(2)}, {"food_respawn_steps", Count(5)}});
}

void PutFoodBeforeHider(Game& game) {
  game.Inject("food", {0.2, 0.0});
  game.Clear();
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  game.Inject("step", {100});
}

double Bites(Game& game) { return game.reward()[0] - 1.0; }

TEST(FoodIsEatenAndComesBack) {
  Game game(FoodSettings());
  PutFoodBeforeHider(game);
  CHECK(game.Observed("mask_af_obs", 0) == 1.0f && game.Observed("mask_af_obs", 1) == 0.0f);
  CHECK(game.Observed("food_obs", 0, 0) == 0.2f && game.Observed("food_obs", 0, 2) == 0.05f);
  std::vector<double> bites;
  for (int i = 0; i < 8; ++i) {
    game.Rest();
    bites.push_back(Bites(game));
    CHECK(game.reward()[1] == -1.0f);
  }
  CHECK(bites == (std::vector<double>{1, 1, 0, 0, 0, 0, 0, 1}));
  CHECK(game.Observed("food_obs", 1, 3) == 1.0f);  // one bite left
  CHECK(game.Statistic("food_eaten") == 3.0f);
}

TEST(NobodyEatsUnseenFoodOrInThePreparationOrWhenCaught) {
  Game game(FoodSettings());
  PutFoodBeforeHider(game);
  game.Inject("step", {50});
  game.Rest();
  CHECK(game.reward()[0] == 0.0f && game.Observed("food_obs", 0, 3) == 2.0f);
  game.Inject("step", {100});
  game.Put("agents", 0, 0.0, 0.0, kFacingWest);
  game.Rest(2);
  CHECK(Bites(game) == 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  game.Put("agents", 1, -2.0, 0.0, kFacingEast);  // sees the hider
  game.Rest(2);
  CHECK(game.reward()[0] == -1.0f);
  // Out of reach, which counts from the corner.
  game.Put("agents", 1, -4.0, 2.0, kFacingWest);
  game.Put("agents", 0, -0.2, 0.0, kFacingEast);
  game.Rest(2);
  CHECK(Bites(game) == 0.0);
}

TEST(HidersShareTheLastBite) {
  for (const char* type : {"selfish", "joint_mean"}) {
    Game game(With(FoodSettings(), {{"hiders", Count(2)},
                                    {"food_health", Count(1)},
                                    {"food_reward", Text(type)},
                                    {"food_reward_scale", 4.0}}));
    game.Inject("food", {0.2, 0.0});
    game.Clear();
    game.Put("agents", 0, 0.0, 0.0, kFacingEast);
    game.Put("agents", 1, 0.2, 0.35, /*angle=*/0.0);  // looks south, to the food
    game.Inject("step", {100});
    game.Rest();
    CHECK(game.reward()[0] == 3.0f && game.reward()[1] == 3.0f);  // 1 for being unseen, 4 / 2
    game.Rest();
    CHECK(game.reward()[0] == 1.0f && game.Statistic("food_eaten") == 1.0f);
  }
}

TEST(FoodLiesInClustersWhereItBelongs) {
  Random random(8);
  const Settings food = {{"food", Count(6)}, {"food_clusters", Count(2)}};
  const Config quadrant{Options(food)};
  const Config full{Options(With(Full(true), food))};
  for (int i = 0; i < 200; ++i) {
    for (const Config& config : {quadrant, full}) {
      const World world = DrawWorld(config, random);
      for (int j = 0; j < 6; ++j) {
        const Point& first = world.food[j / 3 * 3];
        const Point& at = world.food[j];
        CHECK(std::abs(at.x - first.x) < 0.75 && std::abs(at.y - first.y) < 0.75);
        if (j % 3 != 0) continue;
        CHECK(config.scenario == Scenario::kFull || (at.x > 3.0 && at.y < 3.0));
        CHECK(config.scenario == Scenario::kQuadrant || std::abs(at.x - 3.0) < 1.0);
      }
    }
  }
}

TEST(HidersBeginInTheQuadrantOnRequest) {
  Random random(9);
  const Config config{Options({{"hiders_anywhere", false}, {"door_dropout", 0.0}})};
  for (int i = 0; i < 200; ++i) {
    const World world = DrawWorld(config, random);
    for (int hider = 0; hider < config.hiders; ++hider) {
      CHECK(world.corners[hider].x >= 3.0 && world.corners[hider].y < 2.8);
    }
    for (int wall = 4; wall < world.num_walls; ++wall) {  // each has its door
      CHECK(world.walls[wall].half_x < 1.3 && world.walls[wall].half_y < 1.4);
    }
  }
}

TEST(RoomsAndOuterWallsFollowTheOptions) {
  Random random(10);
  const Config config{Options(
      With(Full(true), {{"rooms_min", Count(5)}, {"rooms_max", Count(6)}, {"outer_walls", 1.0}}))};
  CHECK(config.max_walls() == 14);
  for (int i = 0; i < 200; ++i) {
    const World world = DrawWorld(config, random);
    CHECK(world.rooms == 5 || world.rooms == 6);
    CHECK(world.num_walls > 4 && world.num_walls <= 14 && world.walls[3].height == 4.0);
  }
}

TEST(TheFloorOfTheFullGameCanBeLargerOrSmaller) {
  for (double size : {4.0, 9.0, 12.0}) {
    Random random(11);
    const Config config{Options(
        With(Full(true), {{"floor_size", size}, {"outer_walls", 1.0}, {"boxes_max", Count(3)}}))};
    CHECK(config.allowed_range()[0] == -size && config.allowed_range()[1] == 2 * size);
    double farthest = 0.0;
    for (int i = 0; i < 200; ++i) {
      const World world = DrawWorld(config, random);
      CHECK(std::abs(world.walls[2].x - (size - 0.1)) < 1e-9 && world.walls[2].height == 4.0);
      for (int thing = 0; thing < config.agents() + world.num_boxes + config.ramps; ++thing) {
        farthest = std::max({farthest, world.corners[thing].x, world.corners[thing].y});
      }
    }
    CHECK(farthest < size - 0.3 && farthest > 0.8 * size);
  }
  CHECK(Says(Refusal(With(Full(true), {{"floor_size", 3.8}})), "expected 4 to 12"));
  CHECK(Says(Refusal(With(Full(true), {{"floor_size", 6.1}})), "a multiple of 0.2"));
}

}  // namespace
}  // namespace srl::hide_and_seek
