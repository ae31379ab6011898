#include "envs/hide_and_seek/tasks/food.h"

#include <algorithm>
#include <cmath>

namespace srl::hide_and_seek {

void Food::Begin(const View& view) {
  *this = Food();
  health_.fill(view.config.food.health);
  Look(view);
}

void Food::Look(const View& view) {
  caught_ = view.episode.seen;
  for (int agent = 0; agent < view.agents(); ++agent) {
    const Cone cone(view.simulation.position(agent));
    for (int i = 0; i < view.config.food.count; ++i) {
      const auto place = FoodPosition(view.episode.world, i);
      sees_[agent][i] = cone.Holds(place[0], place[1]) && PointInSight(view.scene, agent, place);
    }
  }
}

Food::Bites Food::Reach(const View& view) const {
  Bites bites = {};
  const FoodConfig& config = view.config.food;
  if (view.config.prepares(view.episode.step - 1)) return bites;
  if (caught_ && !config.when_caught) return bites;
  for (int agent = 0; agent < view.config.hiders; ++agent) {
    const auto from = view.simulation.position(agent);  // the corner, as the original measures
    for (int i = 0; i < config.count; ++i) {
      const auto place = FoodPosition(view.episode.world, i);
      const double distance =
          std::hypot(from[0] - place[0], from[1] - place[1], from[2] - place[2]);
      if (sees_[agent][i] && distance < config.radius && health_[i] > 0.0) bites[agent][i] = 1.0;
    }
  }
  return bites;
}

std::array<double, kMaxAgents> Food::Eat(const View& view) {
  Bites bites = Reach(view);
  std::array<double, kMaxAgents> eaten = {};
  for (int i = 0; i < view.config.food.count; ++i) {
    double total = 0.0;
    for (const auto& row : bites) total += row[i];
    // Where more want a bite than there are, they share what is left.
    const double share = total > health_[i] ? health_[i] / total : 1.0;
    for (int agent = 0; agent < view.agents(); ++agent) eaten[agent] += share * bites[agent][i];
    Digest(view.config.food, i, std::min(total, health_[i]));
  }
  for (double bite : eaten) eaten_ += bite;
  return eaten;
}

void Food::Digest(const FoodConfig& config, int food, double bites) {
  double& health = health_[food];
  int& empty_steps = empty_steps_[food];
  health -= bites;
  if (config.respawn_steps > 0 && empty_steps == config.respawn_steps) health = config.health;
  empty_steps = health == 0.0 ? empty_steps + 1 : 0;
}

}  // namespace srl::hide_and_seek
