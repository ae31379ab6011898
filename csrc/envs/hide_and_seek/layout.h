// Random worlds: walls, sizes of the boxes, and where everything starts.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/rooms.h"
#include "srl/random.h"

namespace srl::hide_and_seek {

inline constexpr int kMaxSites = 4;

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

  // Of some tasks alone.
  std::array<Point, kMaxFood> food = {};
  int num_sites = 0;
  std::array<Point, kMaxSites> sites = {};     // centres of the squares to be built on
  Point cylinder = {};                         // its centre
  double cylinder_radius = 0.0;                // 0: there is none
  std::array<int, kMaxBoxes> lock_order = {};  // boxes, in the order they are to be locked
  std::array<bool, kMaxBoxes> goes_left = {};  // to which side a box goes away
};

// A cell of the grid that the floor is divided into, or a number of cells along x and y.
struct Cell {
  int x = 0;
  int y = 0;
};

// Gives the first cell of a thing that covers so many cells.
using DrawCell = std::function<Cell(Cell count, Random& random)>;

// Anywhere but on the cells of the outer walls, walls or not.
DrawCell DrawAnywhere(int cells = kGridSize);
// Within the middle of the floor, a square of this share of its side.
DrawCell DrawInTheMiddle(double share, int cells = kGridSize);
// Within so many metres of a cell.
DrawCell DrawNear(Cell other, double radius, int cells = kGridSize);
// From `low` to `high`, the last one left out, both of which must hold the thing.
DrawCell DrawWithin(Cell low, Cell high);

// Builds a world piece by piece, as a task wants it. Things take cells, each of them free ones.
class WorldBuilder {
 public:
  WorldBuilder(const Config& config, World* world, Random& random)
      : config_(config), world_(*world), random_(random) {}

  World& world() { return world_; }
  Random& random() { return random_; }

  void AddWalls(std::span<const GridWall> walls);
  void DrawBoxSizes();

  // These give false or nothing where no free place was found in ten tries.
  std::optional<Cell> PlaceAgent(int agent, const DrawCell& draw);
  bool PlaceBoxes(const DrawCell& draw);
  bool PlaceRamp(int ramp, const DrawCell& draw);
  std::optional<Cell> Place(Point size, const DrawCell& draw, Point* corner);

 private:
  bool AnyTaken(Cell first, Cell count) const;
  void Take(Cell first, Cell count);

  const Config& config_;
  World& world_;
  Random& random_;
  std::array<std::array<bool, kMaxGridSize>, kMaxGridSize> taken_ = {};
};

// Where the original game puts a mark of this size for which it has found a place: it stretches the
// floor by the mark's size instead of moving the mark to its middle.
inline Point MarkAt(Point corner, double size, double floor_size = kFloorSize) {
  const double stretch = floor_size / (floor_size - size);
  return {corner.x * stretch, corner.y * stretch};
}

// A world of the task. Throws std::invalid_argument if none is found, as in one with more boxes
// than it has room for.
World DrawWorld(const Config& config, Random& random);

}  // namespace srl::hide_and_seek
