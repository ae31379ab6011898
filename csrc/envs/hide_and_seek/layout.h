// Random worlds: walls, sizes of the boxes, and where everything starts.
#pragma once

#include <array>

#include "envs/hide_and_seek/config.h"
#include "srl/random.h"

namespace srl::hide_and_seek {

struct Point {
  double x = 0.0;
  double y = 0.0;
};

struct Wall {
  double x = 0.0;  // centre
  double y = 0.0;
  double half_x = 0.0;
  double half_y = 0.0;
  double height = 0.0;
};

using HalfSize = std::array<double, 3>;

inline constexpr HalfSize kCubeHalf = {0.25, 0.25, 0.25};
inline constexpr HalfSize kLongXHalf = {0.825, 0.075, 0.25};
inline constexpr HalfSize kLongYHalf = {0.075, 0.825, 0.25};

// A plain value without pointers, so that it can be saved byte by byte. Things start at their
// lower left corner, which is also what qpos counts from.
struct World {
  int num_walls = 0;
  int num_boxes = 0;
  std::array<Wall, kMaxWalls> walls = {};
  std::array<HalfSize, kMaxBoxes> box_half = {};
  std::array<Point, kMaxThings> corners = {};  // by number of the thing
  int rooms = 0;
  int attempts = 0;  // how many worlds were drawn until everything found a place
};

World DrawWorld(const Config& config, Random& random);

}  // namespace srl::hide_and_seek
