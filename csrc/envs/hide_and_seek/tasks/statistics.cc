#include "envs/hide_and_seek/tasks/statistics.h"

#include <algorithm>
#include <cmath>

namespace srl::hide_and_seek {
namespace {

constexpr double kOnTop = 0.3;  // height above the floor from which an agent stands on something

struct Locks {
  int of_hiders = 0;
  int of_seekers = 0;
};

Locks CountLocks(const View& view, int first, int last) {
  Locks locks;
  for (int i = first; i < last; ++i) {
    const Lock& lock = view.episode.locks[i];
    if (!lock.locked) continue;
    ++(view.config.team(lock.last_locker) == 0 ? locks.of_hiders : locks.of_seekers);
  }
  return locks;
}

float Share(int part, int whole) {
  return whole == 0 ? 0.0f : static_cast<float>(part) / static_cast<float>(whole);
}

}  // namespace

void Displacement::Begin(const View& view) {
  for (int i = 0; i < view.objects(); ++i) {
    std::copy_n(view.position(i).begin(), 3, start_[i].begin());
  }
}

double Displacement::Largest(const View& view, int first, int last) const {
  double largest = 0.0;
  for (int i = first; i < last; ++i) {
    const auto now = view.position(i);
    const auto& start = start_[i];
    largest =
        std::max(largest, std::hypot(now[0] - start[0], now[1] - start[1], now[2] - start[2]));
  }
  return largest;
}

int Support(const View& view, int agent) {
  const auto from = view.simulation.position(agent);
  if (from[2] < kOnTop) return -1;
  const auto above = view.simulation.center(agent);
  for (int i = 0; i < view.objects(); ++i) {
    const auto center = view.center(i);
    const double x = above[0] - center[0];
    const double y = above[1] - center[1];
    const double cosine = std::cos(view.position(i)[3]);
    const double sine = std::sin(view.position(i)[3]);
    const HalfSize& half = i < view.boxes() ? view.episode.world.box_half[i] : kCubeHalf;
    const bool over =
        std::abs(cosine * x + sine * y) <= half[0] && std::abs(cosine * y - sine * x) <= half[1];
    if (over && above[2] > center[2]) return i;
  }
  return -1;
}

void GameStatistics::Begin(const View& view) {
  *this = GameStatistics();
  since_start_.Begin(view);
}

void GameStatistics::CountSeekers(const View& view) {
  for (int seeker = view.config.hiders; seeker < view.agents(); ++seeker) {
    const auto& sees = view.episode.sees[seeker];
    pairs_seen_ +=
        static_cast<int>(std::count(sees.begin(), sees.begin() + view.config.hiders, true));
    if (view.simulation.position(seeker)[2] < kOnTop) continue;
    ++on_top_;
    const int held = view.episode.held[seeker];
    if (held >= 0 && held == Support(view, seeker)) ++surfing_;
  }
}

void GameStatistics::Update(const View& view, int num_out, std::span<float> statistics) {
  const int boxes = view.boxes();
  const int objects = view.objects();
  const Locks box_locks = CountLocks(view, 0, boxes);
  const Locks ramp_locks = CountLocks(view, boxes, objects);
  statistics[kMaxBoxMove] = static_cast<float>(since_start_.Largest(view, 0, boxes));
  statistics[kMaxRampMove] = static_cast<float>(since_start_.Largest(view, boxes, objects));
  statistics[kNumBoxLock] = static_cast<float>(box_locks.of_hiders + box_locks.of_seekers);
  statistics[kNumRampLock] = static_cast<float>(ramp_locks.of_hiders + ramp_locks.of_seekers);
  statistics[kBoxLockHiders] = Share(box_locks.of_hiders, boxes);
  statistics[kBoxLockSeekers] = Share(box_locks.of_seekers, boxes);
  statistics[kRampLockHiders] = Share(ramp_locks.of_hiders, objects - boxes);
  statistics[kRampLockSeekers] = Share(ramp_locks.of_seekers, objects - boxes);

  const bool main_phase = !view.config.prepares(view.episode.step - 1);
  if (main_phase) ++main_steps_;
  if (main_steps_ <= 1) {
    for (const auto& [prep, now] :
         {std::pair(kMaxBoxMovePrep, kMaxBoxMove), std::pair(kMaxRampMovePrep, kMaxRampMove),
          std::pair(kNumBoxLockPrep, kNumBoxLock), std::pair(kNumRampLockPrep, kNumRampLock),
          std::pair(kBoxLockHidersPrep, kBoxLockHiders),
          std::pair(kBoxLockSeekersPrep, kBoxLockSeekers),
          std::pair(kRampLockHidersPrep, kRampLockHiders),
          std::pair(kRampLockSeekersPrep, kRampLockSeekers)}) {
      statistics[prep] = statistics[now];
    }
    since_preparation_.Begin(view);
  }
  if (!main_phase) return;

  if (!view.episode.seen) ++unseen_steps_;
  out_of_bounds_ += num_out;
  CountSeekers(view);
  const int seeker_steps = main_steps_ * view.config.seekers;
  statistics[kMainSteps] = static_cast<float>(main_steps_);
  statistics[kHidersUnseen] = Share(unseen_steps_, main_steps_);
  statistics[kMaxBoxMoveMain] = static_cast<float>(since_preparation_.Largest(view, 0, boxes));
  statistics[kMaxRampMoveMain] =
      static_cast<float>(since_preparation_.Largest(view, boxes, objects));
  statistics[kSeekersOnTop] = Share(on_top_, seeker_steps);
  statistics[kSeekersSurfing] = Share(surfing_, seeker_steps);
  statistics[kSeekerSight] = Share(pairs_seen_, seeker_steps * view.config.hiders);
  statistics[kOutOfBounds] = Share(out_of_bounds_, main_steps_ * view.agents());
}

}  // namespace srl::hide_and_seek
