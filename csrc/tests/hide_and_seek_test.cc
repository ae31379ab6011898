#include "envs/hide_and_seek/hide_and_seek.h"

#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/check.h"
#include "tests/hide_and_seek_game.h"

namespace srl::hide_and_seek {
namespace {

TEST(HideAndSeekHasThePublishedShapes) {
  const Specs full = HideAndSeek::MakeSpecs(Options(Full(true)));
  CHECK(full.agents == (std::vector<std::string>{"hider_0", "hider_1", "seeker_0", "seeker_1"}));
  CHECK(full.max_episode_steps == 240);
  CHECK(full.observation[kAgentQposQvel].space.shape == (std::vector<int>{3, 10}));
  CHECK(full.observation[kBoxObs].space.shape == (std::vector<int>{9, 15}));
  CHECK(full.observation[kRampObs].space.shape == (std::vector<int>{2, 15}));
  const Specs quadrant = HideAndSeek::MakeSpecs(Options(Quadrant()));
  CHECK(quadrant.max_episode_steps == 80);
  CHECK(quadrant.observation[kBoxObs].space.shape == (std::vector<int>{2, 12}));
  CHECK(quadrant.observation[kRampObs].space.shape == (std::vector<int>{1, 9}));
  CHECK(quadrant.observation[kLidar].space.shape == (std::vector<int>{30, 1}));
}

TEST(SeekerSeesAheadButNotBehindOrThroughWalls) {
  Game game(Duel());
  game.Clear();
  game.Put("agents", 0, 2.0, 0.0);
  const auto sees = [&game](double angle) {
    game.Put("agents", 1, 0.0, 0.0, angle);
    CHECK(game.Get("mask_agents", 1) == game.Observed(kMaskAaObs, 1));
    CHECK(game.Get("seen", 0) == game.Observed(kMaskAaObs, 1));
    return game.Observed(kMaskAaObs, 1) == 1.0f;
  };
  const double degree = std::numbers::pi / 180;
  CHECK(sees(kFacingEast));
  CHECK(sees(kFacingEast + 67 * degree) && sees(kFacingEast - 67 * degree));
  CHECK(!sees(kFacingEast + 68 * degree) && !sees(kFacingEast - 68 * degree));
  CHECK(!sees(kFacingWest));
  CHECK(sees(kFacingEast + 2 * std::numbers::pi));

  game.Put("boxes", 0, 1.0, 0.0);
  CHECK(!sees(kFacingEast));
  CHECK(game.Observed(kMaskAbObs, 1, 0) == 1.0f);
  game.Clear();
  game.Inject("walls", {1.0, 0.0, 0.05, 3.0, 0.5});
  game.Put("agents", 0, 2.0, 0.0);
  CHECK(!sees(kFacingEast));
  game.Put("agents", 0, 2.0, 0.0, 0.0, /*z=*/1.5);
  game.Put("agents", 1, 0.0, 0.0, kFacingEast, /*z=*/1.5);
  CHECK(game.Observed(kMaskAaObs, 1) == 1.0f);  // over the wall
}

TEST(LidarMeasuresInWorldDirections) {
  Game game(Duel());
  game.Clear();
  game.Inject("walls", {2.0, 0.0, 0.05, 1.0, 0.5});
  game.Put("agents", 0, -20.0, 0.0);
  for (double angle : {0.0, 1.0}) {
    game.Put("agents", 1, 0.0, 0.0, angle);
    CHECK(std::abs(game.Observed(kLidar, 1, 0) - 1.95) < 1e-6);
    CHECK(game.Observed(kLidar, 1, 8) == 6.0f);  // nothing there
    // Not clipped: the hider is farther away than what stands for nothing.
    CHECK(std::abs(game.Observed(kLidar, 1, 15) - 19.85) < 1e-5);
  }
}

// The hider stands west of box 0 within reach, facing it.
void PutHiderAtBox(Game& game) {
  game.Put("boxes", 0, 0.45, 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
}

double BoxX(const Game& game) { return game.Get("boxes", 0); }

TEST(LockedBoxDoesNotMoveWhenPushed) {
  Game game(Duel());
  for (const int lock : {0, 1}) {
    game.Clear();
    PutHiderAtBox(game);
    const double start = BoxX(game);
    for (int i = 0; i < 20; ++i) game.Step({{.x = kEast, .lock = lock}, {}});
    CHECK(game.Get("locked", 0) == lock);
    if (lock == 0) {
      CHECK(BoxX(game) > start + 0.5);
    } else {
      CHECK(std::abs(BoxX(game) - start) < 0.02);
      CHECK(game.Observed(kBoxObs, 0, 12) == 1.0f && game.Observed(kBoxObs, 1, 12) == 0.0f);
      CHECK(game.Observed(kBoxObs, 1, 13) == 0.0f && game.Observed(kBoxObs, 1, 14) == 1.0f);
      CHECK(game.Statistic("num_box_lock") == 1.0f);
    }
  }
}

TEST(OnlyTheLockingTeamUnlocks) {
  Game game(Duel());
  game.Clear();
  game.Inject("step", {100});  // seekers may act
  PutHiderAtBox(game);
  game.Step({{.lock = 1}, {}});
  CHECK(game.Get("locked_by", 0) == 0);
  game.Put("agents", 0, -3.0, 0.0);
  game.Put("agents", 1, 0.0, 0.0, kFacingEast);
  for (int i = 0; i < 5; ++i) game.Step({{}, {.lock = i % 2}});
  CHECK(game.Get("locked_by", 0) == 0);
  game.Put("agents", 1, -3.0, 2.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingWest);  // does not see the box
  game.Step({{}, {}});
  CHECK(game.Get("locked", 0) == 1);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  game.Step({{}, {}});
  CHECK(game.Get("locked", 0) == 0);
}

TEST(IdleHiderKeepsSeekersFromLocking) {
  Game game(Duel());
  game.Clear();
  game.Inject("step", {100});
  PutHiderAtBox(game);
  game.Put("agents", 1, 0.9, 0.0, kFacingWest);
  game.Step({{}, {.lock = 1}});
  CHECK(game.Get("locked", 0) == 0);
  game.Put("agents", 0, -3.0, 0.0);
  game.Step({{}, {.lock = 1}});
  CHECK(game.Get("locked_by", 0) == 1);
}

TEST(GrabbedBoxFollowsUntilItIsReleased) {
  Game game(Duel());
  game.Clear();
  PutHiderAtBox(game);
  for (int i = 0; i < 10; ++i) game.Step({{.x = kWest, .grab = 1}, {}});
  CHECK(game.Get("grabbed", 0) == 0);
  CHECK(BoxX(game) < -0.5);
  CHECK(std::abs(BoxX(game) - game.Get("agents", 0) - 0.45) < 0.05);
  for (int i = 0; i < 10; ++i) game.Step({{.x = kWest}, {}});
  CHECK(game.Get("grabbed", 0) == -1);
  CHECK(BoxX(game) - game.Get("agents", 0) > 1.0);
}

TEST(NothingIsGrabbedOutOfReachOrUnseen) {
  Game game(Duel());
  game.Clear();
  game.Put("boxes", 0, 0.55, 0.0);  // 0.3 to its side
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  game.Step({{.grab = 1}, {}});
  CHECK(game.Get("grabbed", 0) == -1);
  game.Put("boxes", 0, 0.45, 0.0);
  game.Put("agents", 0, 0.0, 0.0, kFacingWest);
  game.Step({{.grab = 1}, {}});
  CHECK(game.Get("grabbed", 0) == -1);
}

TEST(UnlockedBoxFallsEvenWhenItSlept) {
  Game game(Duel());
  game.Clear();
  game.Put("boxes", 0, 0.45, 0.0, 0.0, /*z=*/0.2);
  game.Put("agents", 0, 0.0, 0.0, kFacingEast);
  for (int i = 0; i < 30; ++i) game.Step({{.lock = 1}, {}});
  CHECK(game.Get("boxes_qpos", 2) > 0.19);
  CHECK(game.Get("boxes_qvel", 2) == 0.0);
  for (int i = 0; i < 10; ++i) game.Step({{}, {}});
  CHECK(game.Get("boxes_qpos", 2) < 0.01);
}

TEST(RewardsBeginAfterThePreparation) {
  Game game(Duel());
  game.Clear();
  game.Put("agents", 0, 2.0, 0.0);
  game.Put("agents", 1, 0.0, 0.0, kFacingEast);
  for (int step = 1; step <= 100; ++step) {
    game.Step({{}, {}});
    CHECK(game.Get("seen", 0) == 1);
    CHECK(game.reward() == (step <= 96 ? std::vector{0.0f, 0.0f} : std::vector{-1.0f, 1.0f}));
    CHECK((game.Observed(kObservationSelf, 0, 9) == 1.0f) == (step >= 97));
  }
  CHECK(game.Statistic("hiders_unseen") == 0.0f);
  game.Put("agents", 1, 0.0, 0.0, kFacingWest);
  game.Step({{}, {}});
  CHECK(game.reward() == (std::vector{1.0f, -1.0f}));
  CHECK(game.Statistic("main_steps") == 5.0f);
  CHECK(std::abs(game.Statistic("hiders_unseen") - 0.2f) < 1e-6f);
  game.Put("agents", 0, 12.1, 0.0);  // out of bounds
  game.Step({{}, {}});
  CHECK(game.reward() == (std::vector{-10.0f, -1.0f}));
}

TEST(QuadrantPunishesAllForObjectsOutside) {
  Game game({{"hiders", std::int64_t{1}}, {"seekers", std::int64_t{1}}});
  const std::vector<Act> rest(2);
  game.Put("ramps", 0, 7.0, 3.0);
  for (int step = 1; step <= 34; ++step) {
    game.Step(rest);
    const float expected = step <= 32 ? 0.0f : -10.0f;
    CHECK(game.reward() == (std::vector{expected, expected}));
  }
  CHECK(game.Statistic("out_of_bounds") == 1.0f);
}

TEST(SeekersCannotActDuringThePreparation) {
  Game still(Full(true), 11);
  Game busy(Full(true), 11);
  Random choice(12);
  const auto act = [&choice] {
    return Act{choice.Integer(0, 10), choice.Integer(0, 10), choice.Integer(0, 10),
               choice.Integer(0, 1), choice.Integer(0, 1)};
  };
  for (int step = 1; step <= 97; ++step) {
    const Act first = act();
    const Act second = act();
    still.Step({first, second, {}, {}});
    busy.Step({first, second, act(), act()});
    CHECK((still.Bytes() == busy.Bytes()) == (step <= 96));
  }
}

TEST(EqualSeedsGiveEqualGames) {
  Game fresh(Full(true), 21);
  Game used(Full(true), 20);
  Random other(1);
  for (int i = 0; i < 50; ++i) used.StepRandomly(other, 5);
  used.random() = Random(21);
  used.Reset();
  Random choice(22);
  Random same_choice(22);
  for (int i = 0; i < 100; ++i) {
    fresh.StepRandomly(choice);
    used.StepRandomly(same_choice);
    CHECK(fresh.Bytes() == used.Bytes());
  }
}

// What a game of random actions comes to, step by step; `between` is called before each.
template <typename Function>
std::vector<std::vector<std::byte>> Play(std::uint64_t seed, const Function& between) {
  Game game(Full(true), seed);
  Random choice(seed);
  std::vector<std::vector<std::byte>> played;
  for (int i = 0; i < 100; ++i) {
    between();
    if (i % 40 == 39) game.Reset();
    game.StepRandomly(choice, 5);
    played.push_back(game.Bytes());
    played.push_back(game.env().Model());
  }
  return played;
}

TEST(GamesThatShareAThreadDoNotDisturbEachOther) {
  Game other(Full(true), 41);
  Game third(Full(false), 42);
  Random choice(43);
  const auto disturb = [&] {
    if (choice.Integer(0, 9) == 0) other.Reset();
    other.StepRandomly(choice, 5);
    third.StepRandomly(choice, 5);
  };
  CHECK(Play(44, disturb) == Play(44, [] {}));
}

TEST(AGameMayMoveFromThreadToThread) {
  Game game(Full(true), 45);
  Random choice(46);
  Game moving(Full(true), 45);
  Random same_choice(46);
  for (int i = 0; i < 20; ++i) {
    game.StepRandomly(choice, 5);
    std::thread([&] { moving.StepRandomly(same_choice, 5); }).join();
    CHECK(game.Bytes() == moving.Bytes());
    CHECK(game.Get("qpos") == moving.Get("qpos"));
  }
}

TEST(AThreadLoadsOneWorldAtATime) {
  Game game(Full(true));
  Game other(Full(true));
  const auto refuses = [](const auto& work) {
    try {
      work();
    } catch (const std::logic_error&) {
      return true;
    }
    return false;
  };
  {
    const Simulation::Loaded loaded(&game.env().simulation());
    CHECK(refuses([&] { other.Rest(); }));
    CHECK(refuses([] { Game third(Full(true)); }));
  }
  CHECK(!refuses([&] { other.Rest(); }));
}

TEST(SavedGameContinuesBitByBit) {
  std::vector<Settings> all = {Full(true), Full(false), Quadrant(),
                               With(Full(true), {{"food", std::int64_t{4}},
                                                 {"grab_selective", true},
                                                 {"lock_type", std::string("any_lock_specific")}})};
  for (const char* task : kTaskNames) all.push_back(TaskSettings(task));
  for (const Settings& settings : all) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Game game(settings, seed);
      Random choice(seed);
      for (int i = 0; i < 25; ++i) game.StepRandomly(choice, 5);
      std::vector<std::byte> saved;
      Archive writer(&saved);
      game.env().Serialize(writer);
      const Random random = game.random();
      const std::vector<std::byte> before = game.Bytes();
      const Numbers lidar = game.Get("lidar");

      std::vector<std::vector<std::byte>> expected;
      Random first_choice(seed);
      for (int i = 0; i < 50; ++i) {
        game.StepRandomly(first_choice, 1);
        expected.push_back(game.Bytes());
      }
      game.Renew();
      Archive reader{std::span<const std::byte>(saved)};
      game.env().Serialize(reader);
      CHECK(reader.remaining() == 0);
      game.random() = random;
      game.Write();
      CHECK(game.Bytes() == before);
      CHECK(game.Get("lidar") == lidar);
      Random second_choice(seed);
      for (int i = 0; i < 50; ++i) {
        game.StepRandomly(second_choice, 1);
        CHECK(game.Bytes() == expected[i]);
      }
    }
  }
}

TEST(PhysicsStaysCalmUnderRandomActions) {
  for (const bool sleep : {true, false}) {
    Game game(Full(sleep), 31);
    Random choice(32);
    for (int step = 0; step < 2000; ++step) {
      if (step % 240 == 239) game.Reset();
      game.StepRandomly(choice, step % 480 < 240 ? 1 : 10);
      CHECK(game.Statistic("diverged") == 0.0f);
      for (const char* group : {"agents_qvel", "boxes_qvel", "ramps_qvel"}) {
        for (double velocity : game.Get(group)) CHECK(std::abs(velocity) < 60.0);
      }
    }
  }
}

TEST(DivergenceTruncatesWithTheLastObservation) {
  Game game(Duel());
  game.Clear();
  Numbers velocity = game.Get("boxes_qvel");
  velocity[0] = 1e9;  // the next step leaves what MuJoCo accepts
  game.Inject("boxes_qvel", velocity);
  auto before = game.fields();
  for (int i = 0; i < 15 && !game.truncated(0); ++i) {
    before = game.fields();
    game.Step({{}, {}});
  }
  CHECK(game.truncated(0) && game.truncated(1));
  CHECK(game.Statistic("diverged") == 1.0f);
  CHECK(game.reward() == (std::vector{0.0f, 0.0f}));
  CHECK(game.fields() == before);
  for (const auto& field : before) {
    for (float value : field) CHECK(std::isfinite(value));
  }
  game.Reset();
  game.Step({{}, {}});
  CHECK(!game.truncated(0) && game.Statistic("diverged") == 0.0f);
}

TEST(SavedModelHasTheWorldsShape) {
  Game game(Full(true));
  const std::vector<std::byte> bytes = game.env().Model();
  CHECK(bytes.size() > 1000);
  CHECK(game.Get("qpos").size() ==
        game.Get("agents_qpos").size() + game.Get("boxes_qpos").size() + 8);
}

}  // namespace
}  // namespace srl::hide_and_seek
