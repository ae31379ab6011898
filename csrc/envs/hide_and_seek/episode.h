// The state of an episode besides the physics.
#pragma once

#include <array>

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/simulation.h"

namespace srl::hide_and_seek {

struct Lock {
  bool locked = false;
  int last_locker = 0;  // whose team may unlock; at first the first hider's
};

// A plain value that is saved byte by byte.
struct Episode {
  World world;
  int step = 0;
  bool terminated = false;
  bool diverged = false;
  bool seen = false;  // some seeker sees some hider
  std::array<std::array<bool, kMaxThings>, kMaxAgents> sees = {};
  std::array<int, kMaxAgents> held = {};  // an object or -1
  std::array<Lock, kMaxObjects> locks = {};
  std::array<float, kMaxAgents> reward = {};
};

// All that a task judges by.
struct View {
  int agents() const { return config.agents(); }
  int boxes() const { return episode.world.num_boxes; }
  int objects() const { return boxes() + config.ramps; }
  // Four numbers: the corner's x, y, z and the angle.
  std::span<const double> position(int object) const {
    return simulation.position(agents() + object);
  }
  std::span<const double, 3> center(int object) const {
    return simulation.center(agents() + object);
  }

  const Config& config;
  const Simulation& simulation;
  const Scene& scene;
  const Episode& episode;
};

}  // namespace srl::hide_and_seek
