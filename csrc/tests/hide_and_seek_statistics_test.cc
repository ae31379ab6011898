// Each statistic of hide and seek in a situation made by hand.
#include <cmath>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/hide_and_seek_game.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kPreparation = 12;

// A duel whose preparation is short.
Settings ShortDuel() { return With(Duel(), {{"prep_fraction", 0.05}}); }

bool Is(float value, double expected) { return std::abs(value - expected) < 1e-6; }

TEST(LockSharesAreCountedByTeam) {
  Game game(ShortDuel());
  game.Clear();
  game.Rest(2);
  game.Inject("locked_by", {0, -1, -1, -1, -1});
  game.Rest(kPreparation);
  game.Inject("locked_by", {0, 1, 1, -1, 1});
  game.Rest();
  CHECK(Is(game.Statistic("box_lock_share_hiders_prep"), 1.0 / 3));
  CHECK(Is(game.Statistic("box_lock_share_seekers_prep"), 0.0));
  CHECK(Is(game.Statistic("ramp_lock_share_seekers_prep"), 0.0));
  CHECK(Is(game.Statistic("box_lock_share_hiders"), 1.0 / 3));
  CHECK(Is(game.Statistic("box_lock_share_seekers"), 2.0 / 3));
  CHECK(Is(game.Statistic("ramp_lock_share_hiders"), 0.0));
  CHECK(Is(game.Statistic("ramp_lock_share_seekers"), 0.5));
  CHECK(Is(game.Statistic("num_box_lock_prep"), 1.0) && Is(game.Statistic("num_box_lock"), 3.0));
  CHECK(Is(game.Statistic("num_ramp_lock"), 1.0));
}

TEST(MovesOfTheMainPhaseCountFromThePreparationsEnd) {
  Game game(ShortDuel());
  game.Clear();
  game.Rest(2);
  game.Put("boxes", 0, 9.5, 0.0);
  game.Rest(kPreparation);  // two steps of the main phase are over
  CHECK(Is(game.Statistic("main_steps"), 2.0));
  CHECK(std::abs(game.Statistic("max_box_move_prep") - 0.5) < 1e-3);
  CHECK(game.Statistic("max_box_move_main") < 1e-3);
  game.Put("boxes", 0, 10.5, 0.0);
  game.Put("boxes", 1, 9.0, 2.25);
  game.Put("ramps", 1, 9.0, -4.75);
  game.Rest();
  CHECK(std::abs(game.Statistic("max_box_move") - 1.5) < 1e-3);
  CHECK(std::abs(game.Statistic("max_box_move_main") - 1.0) < 1e-3);
  CHECK(std::abs(game.Statistic("max_ramp_move_main") - 0.75) < 1e-3);
  CHECK(game.Statistic("max_ramp_move_prep") < 1e-3);
}

TEST(SeekersOnTopAndSurfingAreSharesOfTheirSteps) {
  Game game(ShortDuel());
  game.Clear();
  game.Rest(kPreparation + 1);
  CHECK(Is(game.Statistic("seekers_on_top"), 0.0));
  game.Put("agents", 1, 9.0, 0.0, /*angle=*/0.0, /*z=*/0.5);  // on box 0
  game.Rest();
  CHECK(Is(game.Statistic("seekers_on_top"), 1.0 / 2));
  CHECK(Is(game.Statistic("seekers_surfing"), 0.0));
  game.Step({{}, {.grab = 1}});
  CHECK(game.Get("grabbed", 1) == 0);
  CHECK(Is(game.Statistic("seekers_on_top"), 2.0 / 3));
  CHECK(Is(game.Statistic("seekers_surfing"), 1.0 / 3));
  // What is held beside is not what is stood on, here nothing.
  game.Put("boxes", 0, 9.0, 5.0);
  game.Put("boxes", 1, 9.0, -0.35);
  game.Put("agents", 1, 9.0, 0.0, 0.0, 0.5);
  game.Step({{}, {.grab = 1}});
  CHECK(game.Get("grabbed", 1) == 1);
  CHECK(Is(game.Statistic("seekers_surfing"), 1.0 / 4));
}

TEST(SeekerSightIsTheShareOfPairsThatSee) {
  Game game(With(ShortDuel(), {{"hiders", std::int64_t{2}}}));
  game.Clear();
  game.Put("agents", 0, 2.0, 0.0);
  game.Put("agents", 2, 0.0, 0.0, kFacingEast);
  game.Rest(kPreparation + 2);
  CHECK(Is(game.Statistic("seeker_sight"), 0.5));
  CHECK(Is(game.Statistic("hiders_unseen"), 0.0));
  game.Put("agents", 2, 0.0, 0.0, kFacingWest);  // where only the other one is
  game.Rest();
  CHECK(Is(game.Statistic("seeker_sight"), 0.5));
  game.Put("agents", 2, -8.0, 0.0, kFacingWest);
  game.Rest();
  CHECK(Is(game.Statistic("seeker_sight"), 0.5 * 3 / 4));
  CHECK(Is(game.Statistic("hiders_unseen"), 1.0 / 4));
}

TEST(OutOfBoundsIsTheShareOfAgentsSteps) {
  Game game(ShortDuel());
  game.Clear();
  game.Rest(kPreparation + 3);
  CHECK(Is(game.Statistic("out_of_bounds"), 0.0));
  game.Put("agents", 0, 12.5, 0.0);
  game.Rest();
  CHECK(Is(game.Statistic("out_of_bounds"), 1.0 / 8));
}

}  // namespace
}  // namespace srl::hide_and_seek
