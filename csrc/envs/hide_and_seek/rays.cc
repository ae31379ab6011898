#include "envs/hide_and_seek/rays.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

// Compiled for wider vectors too, which are used where the processor has them; the bits are the
// same, as all is compiled with -ffp-contract=off. The choice is made before GCC's thread sanitizer
// is ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__)
#define VECTORIZED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORIZED
#endif

namespace srl::hide_and_seek {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kHalfViewAngle = 3.0 / 8.0 * std::numbers::pi;
constexpr int kSpheresPerAgent = 3;
constexpr int kLanes = 32;  // the rays and two idle ones, a round number for vector instructions

double Smaller(double a, double b) { return a < b ? a : b; }
double Larger(double a, double b) { return a > b ? a : b; }

// From entering and leaving a convex shape along a line to the first hit of the ray. As in
// MuJoCo, a ray that starts inside hits on leaving.
double FirstHit(double enter, double leave) {
  const double hit = enter >= 0.0 ? enter : leave;
  return (enter <= leave) & (leave >= 0.0) ? hit : kNever;
}

struct Vector {
  double x, y, z;
};

struct Ray {
  Vector origin;
  Vector direction;  // hits are counted in multiples of it
};

Vector ToLocal(const Block& block, Vector v) {
  return {block.cos * v.x + block.sin * v.y, block.cos * v.y - block.sin * v.x, v.z};
}

// Narrows [enter, leave] to where |origin + t * direction| <= half.
void Slab(double origin, double direction, double half, double* enter, double* leave) {
  const double inverse = 1.0 / direction;
  const double a = (-half - origin) * inverse;
  const double b = (half - origin) * inverse;
  *enter = Larger(Smaller(a, b), *enter);
  *leave = Smaller(Larger(a, b), *leave);
}

double Hit(const Block& block, const Ray& ray, bool ramp) {
  const Vector origin =
      ToLocal(block, {ray.origin.x - block.x, ray.origin.y - block.y, ray.origin.z - block.z});
  const Vector direction = ToLocal(block, ray.direction);
  double enter = -kNever;
  double leave = kNever;
  Slab(origin.x, direction.x, block.half_x, &enter, &leave);
  Slab(origin.y, direction.y, block.half_y, &enter, &leave);
  Slab(origin.z, direction.z, block.half_z, &enter, &leave);
  if (ramp) {
    const double height = origin.y + origin.z;  // above the slope, up to a factor
    const double climb = direction.y + direction.z;
    const double crossing = -height / climb;
    if (climb < 0.0) enter = Larger(crossing, enter);
    if (climb > 0.0) leave = Smaller(crossing, leave);
    if (climb == 0.0 && height > 0.0) return kNever;
  }
  return FirstHit(enter, leave);
}

double Hit(const Sphere& sphere, const Ray& ray) {
  const Vector& d = ray.direction;
  const Vector to = {sphere.x - ray.origin.x, sphere.y - ray.origin.y, sphere.z - ray.origin.z};
  const double length2 = d.x * d.x + d.y * d.y + d.z * d.z;
  const double nearest = (to.x * d.x + to.y * d.y + to.z * d.z) / length2;
  const double distance2 = to.x * to.x + to.y * to.y + to.z * to.z;
  const double rest = nearest * nearest - (distance2 - sphere.radius * sphere.radius) / length2;
  if (!(rest >= 0.0)) return kNever;
  const double half = std::sqrt(rest);
  return FirstHit(nearest - half, nearest + half);
}

double Hit(const Cylinder& cylinder, const Ray& ray) {
  const Vector& d = ray.direction;
  double enter = -kNever;
  double leave = kNever;
  Slab(ray.origin.z - cylinder.z, d.z, cylinder.half_z, &enter, &leave);
  const double x = cylinder.x - ray.origin.x;
  const double y = cylinder.y - ray.origin.y;
  const double length2 = d.x * d.x + d.y * d.y;
  const double outside = x * x + y * y - cylinder.radius * cylinder.radius;
  if (length2 == 0.0) return outside <= 0.0 ? FirstHit(enter, leave) : kNever;
  const double nearest = (x * d.x + y * d.y) / length2;
  const double rest = nearest * nearest - outside / length2;
  if (!(rest >= 0.0)) return kNever;
  const double half = std::sqrt(rest);
  return FirstHit(Larger(nearest - half, enter), Smaller(nearest + half, leave));
}

constexpr int kNobody = -1;

// Whether the ray hits something before `distance`, other than these two agents.
bool Blocked(const Scene& scene, const Ray& ray, double distance, int agent = kNobody,
             int other = kNobody) {
  const auto hides = [&](const Block& block, bool ramp) {
    return Hit(block, ray, ramp) < distance;
  };
  for (const Block& wall : scene.walls) {
    if (hides(wall, false)) return true;
  }
  for (const Block& box : scene.boxes) {
    if (hides(box, false)) return true;
  }
  for (const Block& ramp : scene.ramps) {
    if (hides(ramp, true)) return true;
  }
  for (const Cylinder& cylinder : scene.cylinders) {
    if (Hit(cylinder, ray) < distance) return true;
  }
  for (int i = 0; i < static_cast<int>(scene.spheres.size()); ++i) {
    const int owner = i / kSpheresPerAgent;
    if (owner != agent && owner != other && Hit(scene.spheres[i], ray) < distance) return true;
  }
  return false;
}

struct Directions {
  std::array<double, kLanes> x = {};
  std::array<double, kLanes> y = {};
};

Directions MakeDirections() {
  Directions directions;
  for (int i = 0; i < kLanes; ++i) {
    const double angle = 2.0 * std::numbers::pi * i / kLidarRays;
    directions.x[i] = std::cos(angle);
    directions.y[i] = std::sin(angle);
  }
  return directions;
}

using Lanes = std::array<double, kLanes>;

// The directions in the frame of a block turned so, as what a distance along x or y is multiplied
// with.
VECTORIZED Directions Inverse(double cos, double sin, const Directions& directions) {
  Directions inverse;
  for (int i = 0; i < kLanes; ++i) {
    inverse.x[i] = 1.0 / (cos * directions.x[i] + sin * directions.y[i]);
    inverse.y[i] = 1.0 / (cos * directions.y[i] - sin * directions.x[i]);
  }
  return inverse;
}

// Shortens the rays that hit the rectangle of the block between y = -half_y and `y_end`.
VECTORIZED void CastAtRectangle(const Block& block, double y_end, const Directions& inverse,
                                const Sphere& eye, Lanes* nearest) {
  const Vector origin = ToLocal(block, {eye.x - block.x, eye.y - block.y, 0.0});
  const double x_low = -block.half_x - origin.x;
  const double x_high = block.half_x - origin.x;
  const double y_low = -block.half_y - origin.y;
  const double y_high = y_end - origin.y;
  for (int i = 0; i < kLanes; ++i) {
    const double ax = x_low * inverse.x[i];
    const double bx = x_high * inverse.x[i];
    const double ay = y_low * inverse.y[i];
    const double by = y_high * inverse.y[i];
    const double enter = Larger(Smaller(ax, bx), Smaller(ay, by));
    const double leave = Smaller(Larger(ax, bx), Larger(ay, by));
    (*nearest)[i] = Smaller(FirstHit(enter, leave), (*nearest)[i]);
  }
}

VECTORIZED void CastAtCircle(const Sphere& sphere, const Directions& directions, const Sphere& eye,
                             Lanes* nearest) {
  const double x = sphere.x - eye.x;
  const double y = sphere.y - eye.y;
  const double z = sphere.z - eye.z;
  const double outside = x * x + y * y + z * z - sphere.radius * sphere.radius;
  for (int i = 0; i < kLanes; ++i) {
    const double middle = x * directions.x[i] + y * directions.y[i];
    const double rest = middle * middle - outside;
    const double half = std::sqrt(Larger(rest, 0.0));
    const double hit = FirstHit(middle - half, middle + half);
    (*nearest)[i] = Smaller(rest >= 0.0 ? hit : kNever, (*nearest)[i]);
  }
}

}  // namespace

Cone::Cone(std::span<const double> position)
    : x_(position[0]),
      y_(position[1]),
      // The direction of the angle less a right angle.
      facing_x_(std::sin(position[3])),
      facing_y_(-std::cos(position[3])) {}

bool Cone::Holds(double x, double y) const {
  static const double kCosine = std::cos(kHalfViewAngle);
  const double to_x = x - x_;
  const double to_y = y - y_;
  return to_x * facing_x_ + to_y * facing_y_ >= kCosine * std::sqrt(to_x * to_x + to_y * to_y);
}

void CastLidar(const Scene& scene, int agent, std::span<double, kLidarRays> distances) {
  static const Directions directions = MakeDirections();
  static const Directions unturned = Inverse(1.0, 0.0, directions);
  const Sphere& eye = scene.spheres[kSpheresPerAgent * agent];
  Lanes nearest;
  nearest.fill(kNever);
  for (const Block& wall : scene.walls) {
    if (std::abs(eye.z - wall.z) > wall.half_z) continue;
    CastAtRectangle(wall, wall.half_y, unturned, eye, &nearest);
  }
  for (const Block& box : scene.boxes) {
    if (std::abs(eye.z - box.z) > box.half_z) continue;
    CastAtRectangle(box, box.half_y, Inverse(box.cos, box.sin, directions), eye, &nearest);
  }
  for (const Block& ramp : scene.ramps) {
    const double height = eye.z - ramp.z;
    if (std::abs(height) > ramp.half_z) continue;
    // The slope is at y = -z.
    CastAtRectangle(ramp, -height, Inverse(ramp.cos, ramp.sin, directions), eye, &nearest);
  }
  for (const Cylinder& cylinder : scene.cylinders) {
    if (std::abs(eye.z - cylinder.z) > cylinder.half_z) continue;
    CastAtCircle({cylinder.x, cylinder.y, eye.z, cylinder.radius}, directions, eye, &nearest);
  }
  for (int i = 0; i < static_cast<int>(scene.spheres.size()); ++i) {
    const Sphere& sphere = scene.spheres[i];
    if (i / kSpheresPerAgent == agent || std::abs(eye.z - sphere.z) > sphere.radius) continue;
    CastAtCircle(sphere, directions, eye, &nearest);
  }
  for (int i = 0; i < kLidarRays; ++i) {
    distances[i] = nearest[i] == kNever ? kLidarNothing : nearest[i];
  }
}

bool InSight(const Scene& scene, int agent, int thing) {
  const int agents = static_cast<int>(scene.spheres.size()) / kSpheresPerAgent;
  const int boxes = static_cast<int>(scene.boxes.size());
  const Sphere& eye = scene.spheres[kSpheresPerAgent * agent];
  const bool is_ramp = thing >= agents + boxes;
  Vector target;
  if (thing < agents) {
    const Sphere& sphere = scene.spheres[kSpheresPerAgent * thing];
    target = {sphere.x, sphere.y, sphere.z};
  } else if (is_ramp) {
    const Block& ramp = scene.ramps[thing - agents - boxes];
    const double lower = ramp.half_y / 3;  // from the cube's centre to the wedge's
    target = {ramp.x + ramp.sin * lower, ramp.y - ramp.cos * lower, ramp.z - lower};
  } else {
    const Block& box = scene.boxes[thing - agents];
    target = {box.x, box.y, box.z};
  }
  const Ray ray = {{eye.x, eye.y, eye.z}, {target.x - eye.x, target.y - eye.y, target.z - eye.z}};

  double own = kNever;
  if (thing < agents) {
    for (int i = 0; i < kSpheresPerAgent; ++i) {
      own = Smaller(Hit(scene.spheres[kSpheresPerAgent * thing + i], ray), own);
    }
  } else {
    own = is_ramp ? Hit(scene.ramps[thing - agents - boxes], ray, true)
                  : Hit(scene.boxes[thing - agents], ray, false);
  }
  if (own == kNever) return false;

  return !Blocked(scene, ray, own, agent, thing);
}

bool PointInSight(const Scene& scene, int agent, const std::array<double, 3>& point) {
  const Sphere& eye = scene.spheres[kSpheresPerAgent * agent];
  const Ray ray = {{eye.x, eye.y, eye.z}, {point[0] - eye.x, point[1] - eye.y, point[2] - eye.z}};
  return !Blocked(scene, ray, std::nextafter(1.0, 2.0), agent);
}

bool CylinderInSight(const Scene& scene, const std::array<double, 3>& point) {
  const Cylinder& cylinder = scene.cylinders.front();
  const Ray ray = {{point[0], point[1], point[2]},
                   {cylinder.x - point[0], cylinder.y - point[1], cylinder.z - point[2]}};
  const double own = Hit(cylinder, ray);
  return own != kNever && !Blocked(scene, ray, own);
}

}  // namespace srl::hide_and_seek
