// Food for hiders: how much there is, who sees it, and who eats it.
#pragma once

#include <array>
#include <span>

#include "envs/hide_and_seek/episode.h"

namespace srl::hide_and_seek {

inline constexpr double kFoodSize = 0.1;

// The order of events in a step is that of the original game: who eats follows from what was seen
// before the step, and from where agents are after it. A plain value that is saved byte by byte.
class Food {
 public:
  void Begin(const View& view);

  // Lets hiders eat; gives the bites of each agent in this step.
  std::array<double, kMaxAgents> Eat(const View& view);
  // Remembers what is seen for the next step.
  void Look(const View& view);

  double health(int food) const { return health_[food]; }
  bool sees(int agent, int food) const { return sees_[agent][food]; }
  double eaten() const { return eaten_; }  // bites of all hiders in this episode

 private:
  using Bites = std::array<std::array<double, kMaxFood>, kMaxAgents>;

  Bites Reach(const View& view) const;
  void Digest(const FoodConfig& config, int food, double bites);

  std::array<double, kMaxFood> health_ = {};
  std::array<int, kMaxFood> empty_steps_ = {};
  std::array<std::array<bool, kMaxFood>, kMaxAgents> sees_ = {};
  bool caught_ = false;
  double eaten_ = 0.0;
};

// Where the food lies; its height is half its size.
inline std::array<double, 3> FoodPosition(const World& world, int food) {
  return {world.food[food].x, world.food[food].y, kFoodSize / 2};
}

}  // namespace srl::hide_and_seek
