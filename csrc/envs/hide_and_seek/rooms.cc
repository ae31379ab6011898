#include "envs/hide_and_seek/rooms.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace srl::hide_and_seek {
namespace {

constexpr int kTries = 10;       // for one wall, and for a whole division
constexpr int kMinRoomSize = 6;  // cells; junctions on one side of a wall are farther apart
constexpr int kDoorSize = 2;     // cells

GridWall MakeWall(bool vertical, int line, int from, int to, bool outer) {
  GridWall wall{vertical, line, from, to, outer};
  wall.junctions_before = {from, to};
  wall.junctions_after = {from, to};
  return wall;
}

bool Covers(const GridWall& wall, int along) { return wall.from <= along && along <= wall.to; }

bool Cross(const GridWall& a, const GridWall& b) {
  return a.vertical != b.vertical && a.from < b.line && b.line < a.to && b.from < a.line &&
         a.line < b.to;
}

// Registers on `wall` that `other` begins there.
void AddJunction(GridWall& wall, const GridWall& other) {
  if (wall.vertical == other.vertical || !Covers(wall, other.line)) return;
  if (other.from == wall.line) {
    wall.junctions_after.push_back(other.line);
  } else if (other.to == wall.line) {
    wall.junctions_before.push_back(other.line);
  }
}

// A wall from a random place on `start` straight to the line of `end`, if it ends on `end` and
// keeps its distance from the other walls that begin on the same side of `start`.
std::optional<GridWall> Connect(const GridWall& start, const GridWall& end, Random& random) {
  if (start.vertical != end.vertical || start.length() < 2) return std::nullopt;
  const int along = start.from + random.Integer(1, start.length() - 1);
  if (!Covers(end, along) || start.line == end.line) return std::nullopt;
  const auto& junctions = end.line < start.line ? start.junctions_before : start.junctions_after;
  const auto too_close = [along](int junction) {
    return std::abs(along - junction) <= kMinRoomSize;
  };
  if (std::any_of(junctions.begin(), junctions.end(), too_close)) return std::nullopt;
  const auto [from, to] = std::minmax({start.line, end.line});
  return MakeWall(!start.vertical, along, from, to, /*outer=*/false);
}

std::optional<GridWall> ChooseWall(const std::vector<GridWall>& walls, Random& random) {
  const int count = static_cast<int>(walls.size());
  for (int i = 0; i < kTries; ++i) {
    const int start = random.Integer(0, count - 1);
    std::vector<GridWall> candidates;
    for (int end = 0; end < count; ++end) {
      if (end == start) continue;
      const auto candidate = Connect(walls[start], walls[end], random);
      if (!candidate) continue;
      const auto crosses = [&](const GridWall& wall) { return Cross(*candidate, wall); };
      if (std::none_of(walls.begin(), walls.end(), crosses)) candidates.push_back(*candidate);
    }
    if (candidates.empty()) continue;
    return candidates[random.Integer(0, static_cast<int>(candidates.size()) - 1)];
  }
  return std::nullopt;
}

}  // namespace

std::vector<GridWall> OuterWalls(int cells) {
  const int last = cells - 1;
  return {MakeWall(true, 0, 0, last, true), MakeWall(false, 0, 0, last, true),
          MakeWall(true, last, 0, last, true), MakeWall(false, last, 0, last, true)};
}

bool DivideIntoRooms(int rooms, std::vector<GridWall>* walls, Random& random) {
  const std::vector<GridWall> outer = *walls;
  int failures = 0;
  while (walls->size() + 1 < outer.size() + rooms) {
    std::optional<GridWall> added = ChooseWall(*walls, random);
    if (!added) {
      *walls = outer;
      if (++failures == kTries) return false;
      continue;
    }
    for (GridWall& wall : *walls) {
      AddJunction(wall, *added);
      AddJunction(*added, wall);
    }
    walls->push_back(std::move(*added));
  }
  return true;
}

std::vector<GridWall> CutDoor(const GridWall& wall, Random& random) {
  std::vector<int> ends = wall.junctions_before;
  ends.insert(ends.end(), wall.junctions_after.begin(), wall.junctions_after.end());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());

  std::vector<std::size_t> wide_enough;  // stretches between neighbouring junctions
  for (std::size_t i = 0; i + 1 < ends.size(); ++i) {
    if (ends[i + 1] - ends[i] > kDoorSize) wide_enough.push_back(i);
  }
  if (wide_enough.empty()) return {wall};

  const int last = static_cast<int>(wide_enough.size()) - 1;
  const std::size_t stretch = wide_enough[random.Integer(0, last)];
  const int door = ends[stretch] + random.Integer(1, ends[stretch + 1] - ends[stretch] - kDoorSize);
  std::vector<GridWall> pieces;
  if (wall.from < door - 1) {
    pieces.push_back(MakeWall(wall.vertical, wall.line, wall.from, door - 1, wall.outer));
  }
  if (door + kDoorSize < wall.to) {
    pieces.push_back(MakeWall(wall.vertical, wall.line, door + kDoorSize, wall.to, wall.outer));
  }
  return pieces;
}

std::optional<std::vector<GridWall>> DrawRooms(int rooms, double outer_walls, Random& random,
                                               int cells) {
  std::vector<GridWall> walls = OuterWalls(cells);
  const std::size_t outer = walls.size();
  if (!DivideIntoRooms(rooms, &walls, random)) return std::nullopt;

  std::vector<GridWall> pieces;
  for (std::size_t i = outer; i < walls.size(); ++i) {
    for (GridWall& piece : CutDoor(walls[i], random)) pieces.push_back(std::move(piece));
  }
  if (!random.Coin(outer_walls)) return pieces;
  walls.resize(outer);
  walls.insert(walls.end(), pieces.begin(), pieces.end());
  return walls;
}

}  // namespace srl::hide_and_seek
