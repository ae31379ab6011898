// What a hide-and-seek pool is set to, and the game's fixed numbers.
#pragma once

#include <array>

#include "srl/environment.h"

namespace srl::hide_and_seek {

inline constexpr int kMaxTeam = 3;
inline constexpr int kMaxAgents = 2 * kMaxTeam;
inline constexpr int kMaxBoxes = 9;
inline constexpr int kMaxRamps = 2;
inline constexpr int kMaxObjects = kMaxBoxes + kMaxRamps;
inline constexpr int kMaxThings = kMaxAgents + kMaxObjects;
inline constexpr int kMaxWalls = 10;  // four outer walls and six pieces of interior walls

inline constexpr int kLidarRays = 30;
inline constexpr double kLidarNothing = 6.0;  // what lidar reports where a ray hits nothing
inline constexpr double kReach = 0.25;        // from an agent's centre to what it grabs or locks
inline constexpr double kFloorSize = 6.0;
inline constexpr double kAgentRadius = 0.15;
inline constexpr double kRampHalf = 0.25;  // a ramp is half of a cube of this half-size

enum class Scenario { kQuadrant, kFull };

// The things that move are numbered: agents (hiders, then seekers), boxes, ramps. Objects are
// the boxes and ramps alone, in the same order.
struct Config {
  Config() = default;
  // Throws std::invalid_argument saying what was given and what was expected.
  explicit Config(const Options& options);

  bool full() const { return scenario == Scenario::kFull; }
  int agents() const { return hiders + seekers; }
  int ramps() const { return full() ? 2 : 1; }
  int team(int agent) const { return agent < hiders ? 0 : 1; }
  bool ramps_lockable() const { return full(); }
  // While the number of steps done is below this, seekers stand still; there is no reward up to it.
  double preparation_steps() const { return prep_fraction * horizon; }
  // Where agents may be without a penalty: x and y from first to second.
  std::array<double, 2> allowed_range() const;

  Scenario scenario = Scenario::kQuadrant;
  int hiders = 2;
  int seekers = 2;
  int horizon = 80;
  double prep_fraction = 0.4;
  int boxes_min = 2;
  int boxes_max = 2;  // also the number of box rows in an observation
  bool sleep = true;  // objects at rest leave the physics until something touches them
};

}  // namespace srl::hide_and_seek
