// How agents grab things and lock them in place.
#include <limits>

#include "envs/hide_and_seek/hide_and_seek.h"

namespace srl::hide_and_seek {

bool HideAndSeek::Near(int agent, int object, const Distances& distances, bool unseen) const {
  return distances[agent][object] <= kReach && (unseen || episode_.sees[agent][agents() + object]);
}

HideAndSeek::Held HideAndSeek::ChooseNearest(const Wishes& wishes,
                                             const Distances& distances) const {
  Held held;
  held.fill(-1);
  for (int agent = 0; agent < agents(); ++agent) {
    int& nearest = held[agent];
    for (int i = 0; i < objects(); ++i) {
      if (!wishes[agent].grab[i] || !Near(agent, i, distances, config_.grab_out_of_vision))
        continue;
      if (nearest < 0 || distances[agent][i] < distances[agent][nearest]) nearest = i;
    }
  }
  return held;
}

// The nearest pair of an agent and an object first, then the nearest of those that are left.
HideAndSeek::Held HideAndSeek::ChooseExclusively(const Wishes& wishes,
                                                 const Distances& distances) const {
  Held held;
  held.fill(-1);
  std::array<bool, kMaxObjects> taken = {};
  for (;;) {
    double nearest = std::numeric_limits<double>::infinity();
    int agent = -1;
    int object = -1;
    for (int a = 0; a < agents(); ++a) {
      for (int i = 0; i < objects(); ++i) {
        if (held[a] >= 0 || taken[i] || !wishes[a].grab[i]) continue;
        if (distances[a][i] >= nearest || !Near(a, i, distances, config_.grab_out_of_vision)) {
          continue;
        }
        nearest = distances[a][i];
        agent = a;
        object = i;
      }
    }
    if (agent < 0) return held;
    held[agent] = object;
    taken[object] = true;
  }
}

void HideAndSeek::UpdateGrips(const Wishes& wishes, const Distances& distances) {
  const Held held = config_.grab_exclusive ? ChooseExclusively(wishes, distances)
                                           : ChooseNearest(wishes, distances);
  for (int agent = 0; agent < agents(); ++agent) {
    const int object = held[agent];
    // A grip that goes on keeps the pose in which it began.
    if (object >= 0 && object != episode_.held[agent]) simulation_.TakeHold(agent, object);
    simulation_.SetGrip(agent, object >= 0);
    episode_.held[agent] = object;
  }
}

void HideAndSeek::UpdateLocks(const Wishes& wishes, const Distances& distances, Random& random) {
  if (config_.lock_ramps) {
    for (int i = boxes(); i < objects(); ++i) UpdateLock(i, wishes, distances, random);
  }
  for (int i = 0; i < boxes(); ++i) UpdateLock(i, wishes, distances, random);
}

bool HideAndSeek::MayUnlock(int agent, const Lock& lock) const {
  switch (config_.lock_type) {
    case LockType::kAnyLock:
    case LockType::kAllLock:
      return true;
    case LockType::kAnyLockSpecific:
      return lock.locked && agent == lock.last_locker;
    case LockType::kAllLockTeamSpecific:
      return config_.team(agent) == config_.team(lock.last_locker);
  }
  return false;
}

void HideAndSeek::UpdateLock(int object, const Wishes& wishes, const Distances& distances,
                             Random& random) {
  Lock& lock = episode_.locks[object];
  const bool may_lock = task_->MayLock(view(), object);
  std::array<int, kMaxAgents> lockers = {};
  int num_lockers = 0;
  bool idle = false;  // somebody who may unlock stands near and does not press
  for (int agent = 0; agent < agents(); ++agent) {
    if (!Near(agent, object, distances, config_.lock_out_of_vision)) continue;
    if (wishes[agent].lock && may_lock) {
      lockers[num_lockers++] = agent;
    } else if (MayUnlock(agent, lock)) {
      idle = true;
    }
  }
  const auto draw_locker = [&] { return lockers[random.Integer(0, num_lockers - 1)]; };
  // Where all must press, whoever stands idle also keeps others from locking.
  const bool all_must_press = config_.lock_type == LockType::kAllLock ||
                              config_.lock_type == LockType::kAllLockTeamSpecific;
  if (idle && (all_must_press || num_lockers == 0)) {
    if (lock.locked) simulation_.Release(object);
    lock.locked = false;
  } else if (num_lockers > 0 && !lock.locked) {
    lock.locked = true;
    lock.last_locker = draw_locker();
    simulation_.Freeze(object);
  } else if (num_lockers > 0 && idle && config_.lock_type == LockType::kAnyLockSpecific) {
    lock.last_locker = draw_locker();  // it passes to those who press
  }
}

}  // namespace srl::hide_and_seek
