#include "envs/hide_and_seek/layout.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "envs/hide_and_seek/task.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kTries = 10;  // to place one thing
constexpr int kMaxAttempts = 10'000;
constexpr double kWallThickness = kCellSize / 2;
constexpr double kInnerHeight = 0.5;
constexpr double kOuterHeight = 4.0;
constexpr Point kAgentSize = {2 * kAgentRadius, 2 * kAgentRadius};
constexpr Point kRampSize = {2 * kRampHalf, 2 * kRampHalf};

Wall ToWall(const GridWall& grid) {
  const double across = (grid.line + 0.5) * kCellSize;
  const double along = (grid.from + grid.to + 1) * 0.5 * kCellSize;
  const double half_along = (grid.length() * kCellSize - kWallThickness) / 2;
  const double height = grid.outer ? kOuterHeight : kInnerHeight;
  if (grid.vertical) return {across, along, kWallThickness / 2, half_along, height};
  return {along, across, half_along, kWallThickness / 2, height};
}

}  // namespace

DrawCell DrawAnywhere(int cells) {
  return [cells](Cell count, Random& random) {
    const int x = random.Integer(1, cells - 2 - count.x);
    return Cell{x, random.Integer(1, cells - 2 - count.y)};
  };
}

DrawCell DrawWithin(Cell low, Cell high) {
  return [low, high](Cell count, Random& random) {
    return Cell{random.Integer(low.x, high.x - count.x - 1),
                random.Integer(low.y, high.y - count.y - 1)};
  };
}

DrawCell DrawInTheMiddle(double share, int grid) {
  return [share, grid](Cell count, Random& random) {
    // Rounded as in the original game, where the bounds are cut to whole cells only at the end.
    const auto draw = [share, grid, &random](int cells) {
      const int room = grid - cells;
      const int low = static_cast<int>(room * (1 - share) / 2 + share);
      const int high = static_cast<int>(room * (1 + share) / 2 - share);
      return random.Integer(low, high - 1);
    };
    const int x = draw(count.x);
    return Cell{x, draw(count.y)};
  };
}

DrawCell DrawNear(Cell other, double radius, int grid) {
  const int cells = std::max(1, static_cast<int>(std::ceil(radius / kCellSize - 1e-9)));
  return [other, cells, grid](Cell, Random& random) {
    const auto draw = [cells, grid, &random](int at) {
      return random.Integer(std::max(1, at - cells), std::min(grid - 1, at + cells) - 1);
    };
    const int x = draw(other.x);
    return Cell{x, draw(other.y)};
  };
}

void WorldBuilder::AddWalls(std::span<const GridWall> walls) {
  for (const GridWall& wall : walls) {
    world_.walls[world_.num_walls++] = ToWall(wall);
    if (wall.vertical) {
      Take({wall.line, wall.from}, {1, wall.length() + 1});
    } else {
      Take({wall.from, wall.line}, {wall.length() + 1, 1});
    }
  }
}

void WorldBuilder::DrawBoxSizes() {
  world_.num_boxes = random_.Integer(config_.boxes_min, config_.boxes_max);
  world_.box_half.fill(kCubeHalf);
  if (config_.elongated_max == 0) return;
  const int elongated =
      random_.Integer(config_.elongated_min, std::min(config_.elongated_max, world_.num_boxes));
  const int along_x = random_.Integer(0, elongated);
  std::fill_n(world_.box_half.begin(), elongated, kLongYHalf);
  std::fill_n(world_.box_half.begin(), along_x, kLongXHalf);
}

std::optional<Cell> WorldBuilder::PlaceAgent(int agent, const DrawCell& draw) {
  return Place(kAgentSize, draw, &world_.corners[agent]);
}

bool WorldBuilder::PlaceBoxes(const DrawCell& draw) {
  for (int box = 0; box < world_.num_boxes; ++box) {
    const HalfSize& half = world_.box_half[box];
    Point* corner = &world_.corners[config_.agents() + box];
    if (!Place({2 * half[0], 2 * half[1]}, draw, corner)) return false;
  }
  return true;
}

bool WorldBuilder::PlaceRamp(int ramp, const DrawCell& draw) {
  Point* corner = &world_.corners[config_.agents() + world_.num_boxes + ramp];
  return Place(kRampSize, draw, corner).has_value();
}

std::optional<Cell> WorldBuilder::Place(Point size, const DrawCell& draw, Point* corner) {
  // Sizes such as 0.6 must not take another cell because of a rounding error.
  const Cell count = {static_cast<int>(std::ceil(size.x / kCellSize - 1e-9)),
                      static_cast<int>(std::ceil(size.y / kCellSize - 1e-9))};
  for (int i = 0; i < kTries; ++i) {
    const Cell cell = draw(count, random_);
    if (AnyTaken(cell, count)) continue;
    *corner = {cell.x * kCellSize + random_.Uniform(0.0, count.x * kCellSize - size.x),
               cell.y * kCellSize + random_.Uniform(0.0, count.y * kCellSize - size.y)};
    Take(cell, count);
    return cell;
  }
  return std::nullopt;
}

bool WorldBuilder::AnyTaken(Cell first, Cell count) const {
  for (int x = first.x; x < std::min(first.x + count.x, config_.grid_size()); ++x) {
    for (int y = first.y; y < std::min(first.y + count.y, config_.grid_size()); ++y) {
      if (taken_[x][y]) return true;
    }
  }
  return false;
}

void WorldBuilder::Take(Cell first, Cell count) {
  for (int x = first.x; x < std::min(first.x + count.x, config_.grid_size()); ++x) {
    for (int y = first.y; y < std::min(first.y + count.y, config_.grid_size()); ++y)
      taken_[x][y] = true;
  }
}

World DrawWorld(const Config& config, Random& random) {
  const std::unique_ptr<Task> task = MakeTask(config);
  // A failure redraws everything, so that no kind of world becomes rarer than it should piecemeal.
  for (int attempts = 1; attempts <= kMaxAttempts; ++attempts) {
    World world;
    WorldBuilder builder(config, &world, random);
    if (task->Lay(builder)) {
      world.attempts = attempts;
      return world;
    }
  }
  throw std::invalid_argument(
      "no hide-and-seek world in which everything has a place was found in " +
      std::to_string(kMaxAttempts) +
      " tries; ask for fewer things, or for food less close together");
}

}  // namespace srl::hide_and_seek
