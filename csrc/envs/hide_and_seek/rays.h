// What agents see: exact intersections of rays with the few shapes of the game. Much faster than
// MuJoCo's general ray casting, with which it agrees.
#pragma once

#include <span>
#include <vector>

#include "envs/hide_and_seek/config.h"

namespace srl::hide_and_seek {

// A box, upright but turned about z. A ramp is the half of one below its diagonal y + z = 0.
struct Block {
  double x, y, z;  // centre
  double cos, sin;
  double half_x, half_y, half_z;
};

struct Sphere {
  double x, y, z;
  double radius;
};

struct Scene {
  void Clear() {
    walls.clear();
    boxes.clear();
    ramps.clear();
    spheres.clear();
  }

  std::vector<Block> walls;
  std::vector<Block> boxes;
  std::vector<Block> ramps;
  std::vector<Sphere> spheres;  // three for each agent: the body, then its arms
};

// The distance from the agent's centre to the first hit along 30 horizontal rays, the first one
// along x and the others counterclockwise; kLidarNothing where there is none. Not clipped.
void CastLidar(const Scene& scene, int agent, std::span<double, kLidarRays> distances);

// Whether the ray from the agent's centre to the thing's centre (of mass, for a ramp) hits that
// thing first. Things are numbered as in Config.
bool InSight(const Scene& scene, int agent, int thing);

}  // namespace srl::hide_and_seek
