// What agents see: exact intersections of rays with the few shapes of the game. Much faster than
// MuJoCo's general ray casting, with which it agrees.
#pragma once

#include <array>
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

// Upright.
struct Cylinder {
  double x, y, z;  // centre
  double radius;
  double half_z;
};

struct Scene {
  void Clear() {
    cylinders.clear();
    walls.clear();
    boxes.clear();
    ramps.clear();
    spheres.clear();
  }

  std::vector<Block> walls;
  std::vector<Block> boxes;
  std::vector<Block> ramps;
  std::vector<Cylinder> cylinders;
  std::vector<Sphere> spheres;  // three for each agent: the body, then its arms
};

// What lies ahead of an agent.
class Cone {
 public:
  // From the agent's position: its corner, where the cone begins though lines of sight do not, and
  // its angle.
  explicit Cone(std::span<const double> position);

  bool Holds(double x, double y) const;

 private:
  double x_;
  double y_;
  double facing_x_;
  double facing_y_;
};

// The distance from the agent's centre to the first hit along 30 horizontal rays, the first one
// along x and the others counterclockwise; kLidarNothing where there is none. Not clipped.
void CastLidar(const Scene& scene, int agent, std::span<double, kLidarRays> distances);

// Whether the ray from the agent's centre to the thing's centre (of mass, for a ramp) hits that
// thing first. Things are numbered as in Config.
bool InSight(const Scene& scene, int agent, int thing);

// Whether nothing lies between the agent's centre and the point.
bool PointInSight(const Scene& scene, int agent, const std::array<double, 3>& point);

// Whether the ray from the point to the centre of the scene's first cylinder hits that first.
bool CylinderInSight(const Scene& scene, const std::array<double, 3>& point);

}  // namespace srl::hide_and_seek
