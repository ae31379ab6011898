// Numbers that tell how hide and seek is played, and so which strategy has emerged.
#pragma once

#include <array>
#include <span>

#include "envs/hide_and_seek/episode.h"

namespace srl::hide_and_seek {

// Each is of the episode so far; docs/hide_and_seek.md says what it means. Those with `_prep` stop
// after the first step of the main phase, in which alone shares of steps are counted.
enum Statistic {
  kHidersUnseen,
  kMainSteps,
  kMaxBoxMovePrep,
  kMaxBoxMove,
  kMaxBoxMoveMain,
  kNumBoxLockPrep,
  kNumBoxLock,
  kMaxRampMovePrep,
  kMaxRampMove,
  kMaxRampMoveMain,
  kNumRampLockPrep,
  kNumRampLock,
  kBoxLockHidersPrep,
  kBoxLockHiders,
  kBoxLockSeekersPrep,
  kBoxLockSeekers,
  kRampLockHidersPrep,
  kRampLockHiders,
  kRampLockSeekersPrep,
  kRampLockSeekers,
  kSeekersOnTop,
  kSeekersSurfing,
  kSeekerSight,
  kOutOfBounds,
  kNumStatistics
};

inline constexpr std::array<const char*, kNumStatistics> kStatisticNames = {
    "hiders_unseen",
    "main_steps",
    "max_box_move_prep",
    "max_box_move",
    "max_box_move_main",
    "num_box_lock_prep",
    "num_box_lock",
    "max_ramp_move_prep",
    "max_ramp_move",
    "max_ramp_move_main",
    "num_ramp_lock_prep",
    "num_ramp_lock",
    "box_lock_share_hiders_prep",
    "box_lock_share_hiders",
    "box_lock_share_seekers_prep",
    "box_lock_share_seekers",
    "ramp_lock_share_hiders_prep",
    "ramp_lock_share_hiders",
    "ramp_lock_share_seekers_prep",
    "ramp_lock_share_seekers",
    "seekers_on_top",
    "seekers_surfing",
    "seeker_sight",
    "out_of_bounds",
};

// How far objects are from where they were at some time.
class Displacement {
 public:
  void Begin(const View& view);
  double Largest(const View& view, int first, int last) const;

 private:
  std::array<std::array<double, 3>, kMaxObjects> start_ = {};
};

// The object that the agent stands on, well above the floor; -1 without one.
int Support(const View& view, int agent);

// Counts what happens in an episode; a plain value that is saved byte by byte.
class GameStatistics {
 public:
  void Begin(const View& view);
  // After each step; `num_out` agents were out of bounds in it.
  void Update(const View& view, int num_out, std::span<float> statistics);

 private:
  void CountSeekers(const View& view);

  Displacement since_start_;
  Displacement since_preparation_;
  int main_steps_ = 0;
  int unseen_steps_ = 0;
  int out_of_bounds_ = 0;  // agents' steps; the next three are seekers' or pairs' steps
  int on_top_ = 0;
  int surfing_ = 0;
  int pairs_seen_ = 0;
};

}  // namespace srl::hide_and_seek
