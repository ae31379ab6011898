#include "envs/hide_and_seek/layout.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "envs/hide_and_seek/rooms.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kTries = 10;  // to place one thing
constexpr double kWallThickness = kCellSize / 2;
constexpr double kInnerHeight = 0.5;
constexpr double kOuterHeight = 4.0;
constexpr double kProbabilityOuterWalls = 0.5;
constexpr int kMinElongated = 3;
constexpr int kMaxRooms = 4;
constexpr int kTogetherRadius = 3;  // cells; team-mates start about this near to their first
constexpr int kQuadrantSize = 15;   // cells
constexpr double kProbabilityOneDoor = 0.5;
constexpr Point kAgentSize = {2 * kAgentRadius, 2 * kAgentRadius};
constexpr Point kRampSize = {2 * kRampHalf, 2 * kRampHalf};

struct Cell {
  int x = 0;
  int y = 0;
};

Wall ToWall(const GridWall& grid) {
  const double across = (grid.line + 0.5) * kCellSize;
  const double along = (grid.from + grid.to + 1) * 0.5 * kCellSize;
  const double half_along = (grid.length() * kCellSize - kWallThickness) / 2;
  const double height = grid.outer ? kOuterHeight : kInnerHeight;
  if (grid.vertical) return {across, along, kWallThickness / 2, half_along, height};
  return {along, across, half_along, kWallThickness / 2, height};
}

// Which cells of the floor are taken.
class Grid {
 public:
  void Mark(const GridWall& wall) {
    if (wall.vertical) {
      Mark({wall.line, wall.from}, {1, wall.length() + 1});
    } else {
      Mark({wall.from, wall.line}, {wall.length() + 1, 1});
    }
  }

  // Finds a place for a thing of `size` at a cell that `draw` gives, given the cells it covers.
  std::optional<Cell> Place(Point size, const std::function<Cell(Cell)>& draw, Point* corner,
                            Random& random) {
    // Sizes such as 0.6 must not take another cell because of a rounding error.
    const Cell cells = {static_cast<int>(std::ceil(size.x / kCellSize - 1e-9)),
                        static_cast<int>(std::ceil(size.y / kCellSize - 1e-9))};
    for (int i = 0; i < kTries; ++i) {
      const Cell cell = draw(cells);
      if (AnyTaken(cell, cells)) continue;
      *corner = {cell.x * kCellSize + random.Uniform(0.0, cells.x * kCellSize - size.x),
                 cell.y * kCellSize + random.Uniform(0.0, cells.y * kCellSize - size.y)};
      Mark(cell, cells);
      return cell;
    }
    return std::nullopt;
  }

 private:
  bool AnyTaken(Cell first, Cell count) const {
    for (int x = first.x; x < std::min(first.x + count.x, kGridSize); ++x) {
      for (int y = first.y; y < std::min(first.y + count.y, kGridSize); ++y) {
        if (taken_[x][y]) return true;
      }
    }
    return false;
  }

  void Mark(Cell first, Cell count) {
    for (int x = first.x; x < std::min(first.x + count.x, kGridSize); ++x) {
      for (int y = first.y; y < std::min(first.y + count.y, kGridSize); ++y) taken_[x][y] = true;
    }
  }

  std::array<std::array<bool, kGridSize>, kGridSize> taken_ = {};
};

constexpr int kFirst = 1;            // the outer walls' cells are left out, walls or not
constexpr int kEnd = kGridSize - 2;  // the last place of a thing, once its cells are subtracted
constexpr int kQuadrantStart = kGridSize - kQuadrantSize;  // in x; in y the quadrant is the lower
constexpr int kQuadrantEnd = kQuadrantSize - 2;

// The first cell of a thing of `cells` cells, uniform from `low`.
int DrawWithin(int low, int end, int cells, Random& random) {
  return random.Integer(low, end - cells);
}

Cell DrawAnywhere(Cell cells, Random& random) {
  return {DrawWithin(kFirst, kEnd, cells.x, random), DrawWithin(kFirst, kEnd, cells.y, random)};
}

Cell DrawInQuadrant(Cell cells, Random& random) {
  return {DrawWithin(kQuadrantStart, kEnd, cells.x, random),
          DrawWithin(kFirst, kQuadrantEnd, cells.y, random)};
}

// In one of the three rectangles around the quadrant, each as likely.
Cell DrawOutsideQuadrant(Cell cells, Random& random) {
  const int rectangle = random.Integer(0, 2);
  const bool left = rectangle < 2;
  const bool below = rectangle == 0;
  const int x = left ? DrawWithin(kFirst, kQuadrantStart - 2, cells.x, random)
                     : DrawWithin(kQuadrantStart, kEnd, cells.x, random);
  const int y = below ? DrawWithin(kFirst, kQuadrantEnd, cells.y, random)
                      : DrawWithin(kQuadrantSize, kEnd, cells.y, random);
  return {x, y};
}

Cell DrawNear(Cell other, Random& random) {
  const auto draw = [&random](int at) {
    return random.Integer(std::max(1, at - kTogetherRadius),
                          std::min(kGridSize - 1, at + kTogetherRadius) - 1);
  };
  return {draw(other.x), draw(other.y)};
}

std::optional<std::vector<GridWall>> DrawRooms(World* world, Random& random) {
  std::vector<GridWall> walls = OuterWalls();
  const std::size_t outer = walls.size();
  world->rooms = random.Integer(1, kMaxRooms);
  if (!DivideIntoRooms(world->rooms, &walls, random)) return std::nullopt;

  std::vector<GridWall> pieces;
  for (std::size_t i = outer; i < walls.size(); ++i) {
    for (GridWall& piece : CutDoor(walls[i], random)) pieces.push_back(std::move(piece));
  }
  if (!random.Coin(kProbabilityOuterWalls)) return pieces;
  walls.resize(outer);
  walls.insert(walls.end(), pieces.begin(), pieces.end());
  return walls;
}

std::vector<GridWall> DrawQuadrant(Random& random) {
  std::vector<GridWall> walls = OuterWalls();
  const int side = kQuadrantStart;
  const std::array<GridWall, 2> inner = {
      GridWall{true, side, 0, kQuadrantSize, false, {0, kQuadrantSize}, {}},
      GridWall{false, kQuadrantSize, side, kGridSize - 1, false, {side, kGridSize - 1}, {}}};
  const int without_door = random.Coin(kProbabilityOneDoor) ? random.Integer(0, 1) : -1;
  for (int i = 0; i < 2; ++i) {
    if (i == without_door) {
      walls.push_back(inner[i]);
    } else {
      for (GridWall& piece : CutDoor(inner[i], random)) walls.push_back(std::move(piece));
    }
  }
  return walls;
}

bool PlaceAgents(const Config& config, Grid* grid, World* world, Random& random) {
  Cell first;  // of the team
  for (int agent = 0; agent < config.agents(); ++agent) {
    const bool leads = agent == 0 || agent == config.hiders;
    const auto draw = [&](Cell cells) {
      if (config.full()) return leads ? DrawAnywhere(cells, random) : DrawNear(first, random);
      return config.team(agent) == 0 ? DrawAnywhere(cells, random)
                                     : DrawOutsideQuadrant(cells, random);
    };
    const auto cell = grid->Place(kAgentSize, draw, &world->corners[agent], random);
    if (!cell) return false;
    if (leads) first = *cell;
  }
  return true;
}

bool PlaceObjects(const Config& config, Grid* grid, World* world, Random& random) {
  const auto draw_for_ramp = [&random](Cell cells) { return DrawAnywhere(cells, random); };
  const auto draw_for_box = [&](Cell cells) {
    return config.full() ? DrawAnywhere(cells, random) : DrawInQuadrant(cells, random);
  };
  Point* corner = &world->corners[config.agents()];
  for (int box = 0; box < world->num_boxes; ++box) {
    const HalfSize& half = world->box_half[box];
    const Point size = {2 * half[0], 2 * half[1]};
    if (!grid->Place(size, draw_for_box, corner++, random)) return false;
  }
  for (int ramp = 0; ramp < config.ramps(); ++ramp) {
    if (!grid->Place(kRampSize, draw_for_ramp, corner++, random)) return false;
  }
  return true;
}

void DrawBoxSizes(const Config& config, World* world, Random& random) {
  world->num_boxes = random.Integer(config.boxes_min, config.boxes_max);
  world->box_half.fill(kCubeHalf);
  if (!config.full()) return;
  const int elongated = random.Integer(kMinElongated, world->num_boxes);
  const int along_x = random.Integer(0, elongated);
  std::fill_n(world->box_half.begin(), elongated, kLongYHalf);
  std::fill_n(world->box_half.begin(), along_x, kLongXHalf);
}

bool TryDrawWorld(const Config& config, World* world, Random& random) {
  const auto walls = config.full() ? DrawRooms(world, random) : std::optional(DrawQuadrant(random));
  if (!walls) return false;
  Grid grid;
  world->num_walls = static_cast<int>(walls->size());
  for (int i = 0; i < world->num_walls; ++i) {
    grid.Mark((*walls)[i]);
    world->walls[i] = ToWall((*walls)[i]);
  }
  if (!PlaceAgents(config, &grid, world, random)) return false;
  DrawBoxSizes(config, world, random);
  return PlaceObjects(config, &grid, world, random);
}

}  // namespace

World DrawWorld(const Config& config, Random& random) {
  // A failure redraws everything, so that no kind of world becomes rarer than it should piecemeal.
  for (int attempts = 1;; ++attempts) {
    World world;
    if (TryDrawWorld(config, &world, random)) {
      world.attempts = attempts;
      return world;
    }
  }
}

}  // namespace srl::hide_and_seek
