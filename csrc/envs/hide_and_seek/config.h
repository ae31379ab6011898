// What a hide-and-seek pool is set to, and the game's fixed numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "srl/environment.h"

namespace srl::hide_and_seek {

inline constexpr int kMaxTeam = 3;
inline constexpr int kMaxAgents = 2 * kMaxTeam;
inline constexpr int kMaxBoxes = 9;
inline constexpr int kMaxRamps = 3;
inline constexpr int kMaxObjects = kMaxBoxes + kMaxRamps;
inline constexpr int kMaxThings = kMaxAgents + kMaxObjects;
inline constexpr int kMaxRooms = 6;
inline constexpr int kMaxWalls = 2 + 2 * kMaxRooms;  // four around, and two pieces of each inside
inline constexpr int kMaxFood = 16;

inline constexpr int kLidarRays = 30;
inline constexpr double kLidarNothing = 6.0;  // what lidar reports where a ray hits nothing
inline constexpr double kReach = 0.25;        // from an agent's centre to what it grabs or locks
inline constexpr double kFloorSize = 6.0;
inline constexpr double kAgentRadius = 0.15;
inline constexpr double kRampHalf = 0.25;  // a ramp is half of a cube of this half-size

// In the order of kTaskNames.
enum class TaskKind {
  kHideAndSeek,
  kLockAndReturn,
  kSequentialLock,
  kBlueprint,
  kShelter,
  kObjectCounting
};
inline constexpr std::array<const char*, 6> kTaskNames = {"hide_and_seek",   "lock_and_return",
                                                          "sequential_lock", "blueprint",
                                                          "shelter",         "object_counting"};

enum class Scenario { kQuadrant, kFull };

// Who near an object must press to lock it, and who unlocks it by not pressing.
enum class LockType {
  kAnyLock,             // any one locks; unlocked when none presses
  kAllLock,             // locked while all press
  kAnyLockSpecific,     // any one locks; only the locker unlocks
  kAllLockTeamSpecific  // all of the last locker's team must press; others cannot unlock
};

enum class RewardType { kSelfish, kJointMean, kJointZeroSum };

// Food is for hiders, who eat what they see nearby while no seeker sees any of them.
struct FoodConfig {
  int count = 0;
  int health = 40;           // bites
  double radius = 0.5;       // within which it is eaten
  int respawn_steps = 5;     // until eaten food is there again; 0: never
  double together = 0.25;    // radius around the first of a cluster; 0: anywhere
  int clusters = 1;          // whose first ones are placed alone
  bool centered = true;      // in the full game, clusters begin in the middle of the floor
  bool when_caught = false;  // eat although a seeker sees a hider
  RewardType reward = RewardType::kJointMean;
  double reward_scale = 1.0;
};

// The things that move are numbered: agents (hiders, then seekers), boxes, ramps. Objects are
// the boxes and ramps alone, in the same order.
struct Config {
  Config() : Config(Options()) {}
  // Throws std::invalid_argument saying what was given and what was expected.
  explicit Config(const Options& options);

  bool is_game() const { return task == TaskKind::kHideAndSeek; }
  int agents() const { return hiders + seekers; }
  int team(int agent) const { return agent < hiders ? 0 : 1; }
  double preparation_steps() const { return prep_fraction * horizon; }
  // Whether a step, the first being 0, is one in which seekers stand still and nobody is rewarded.
  bool prepares(int step) const { return step < preparation_steps(); }
  // Where agents may be without a penalty: x and y from first to second.
  std::array<double, 2> allowed_range() const;
  // Cells along a side of the floor.
  int grid_size() const { return static_cast<int>(std::lround(floor_size / 0.2)); }
  bool observes_sizes() const { return elongated_max > 0 || !is_game(); }
  // Ten, as always in the published games, unless there are more rooms.
  int max_walls() const { return std::max(10, 2 + 2 * rooms_max); }

  TaskKind task = TaskKind::kHideAndSeek;
  Scenario scenario = Scenario::kQuadrant;
  int hiders = 2;
  int seekers = 2;
  int horizon = 80;
  double prep_fraction = 0.4;

  double floor_size = kFloorSize;

  int boxes_min = 2;
  int boxes_max = 2;  // also the number of box rows in an observation
  int elongated_min = 0;
  int elongated_max = 0;  // or all boxes, where there are fewer
  int ramps = 1;
  int rooms_min = 1;
  int rooms_max = 4;
  double outer_walls = 0.5;   // probability of walls around the floor of the full game
  double door_dropout = 0.5;  // probability that the quadrant has one door instead of two
  bool hiders_anywhere = true;
  double hiders_together = 0.5;  // radius around the first one; 0: anywhere
  double seekers_together = 0.5;
  double wall_friction = 0.01;

  RewardType reward_type = RewardType::kJointZeroSum;
  bool penalize_objects_out = true;
  bool marked_as_hider = true;  // what an agent alone observes of itself

  LockType lock_type = LockType::kAllLockTeamSpecific;
  bool lock_ramps = false;
  bool lock_out_of_vision = false;
  bool grab_out_of_vision = false;
  bool grab_selective = false;  // an action for each object instead of one for the nearest
  bool grab_exclusive = false;  // one agent for each object

  double lidar_scale = 0.0;  // distances d are given as scale * tanh(d / scale); 0: as they are
  FoodConfig food;
  bool sleep = true;  // objects at rest leave the physics until something touches them
};

}  // namespace srl::hide_and_seek
