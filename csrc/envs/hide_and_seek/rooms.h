// Rooms on the placement grid: walls along grid lines, split by doors.
#pragma once

#include <optional>
#include <vector>

#include "srl/random.h"

namespace srl::hide_and_seek {

inline constexpr int kGridSize = 30;  // cells along a side of the floor, if nothing else is said
inline constexpr int kMaxGridSize = 60;
inline constexpr double kCellSize = 0.2;

// A wall on the grid line `line`, covering the cells `from` to `to` (both included) along it.
struct GridWall {
  bool vertical = false;  // along y, at x cell `line`; else along x, at y cell `line`
  int line = 0;
  int from = 0;
  int to = 0;
  bool outer = false;
  // Where other walls begin, along this wall, on its side of smaller and of larger coordinates.
  std::vector<int> junctions_before = {};
  std::vector<int> junctions_after = {};

  int length() const { return to - from; }
};

// The four walls around the floor.
std::vector<GridWall> OuterWalls(int cells = kGridSize);

// Adds interior walls to `walls` (the outer ones at first) until there are `rooms` rooms. Returns
// false if that failed too often, and `walls` is then of no use.
bool DivideIntoRooms(int rooms, std::vector<GridWall>* walls, Random& random);

// The pieces of `wall` that a door at a random place leaves: two, or fewer where a piece would be
// a single cell. A wall with no stretch long enough for a door stays whole.
std::vector<GridWall> CutDoor(const GridWall& wall, Random& random);

// The walls of so many rooms, each of the inner ones with a door; those around the floor come with
// the given probability. Nothing if dividing failed too often.
std::optional<std::vector<GridWall>> DrawRooms(int rooms, double outer_walls, Random& random,
                                               int cells = kGridSize);

}  // namespace srl::hide_and_seek
