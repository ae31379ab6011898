// Looking into a game and setting it up, for drawing and for tests.
#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>
#include <string>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/hide_and_seek.h"

namespace srl::hide_and_seek {
namespace {

using Numbers = std::vector<double>;

void CheckSize(const std::string& name, const Numbers& values, std::size_t expected) {
  if (values.size() == expected) return;
  throw std::invalid_argument("'" + name + "' got " + std::to_string(values.size()) +
                              " numbers, expected " + std::to_string(expected));
}

void Append(std::span<const double> values, Numbers* out) {
  out->insert(out->end(), values.begin(), values.end());
}

// Whole numbers from `low` to `high`, or an error.
int CheckedInteger(const std::string& name, double value, int low, int high) {
  if (value >= low && value <= high && value == static_cast<int>(value)) {
    return static_cast<int>(value);
  }
  throw std::invalid_argument("'" + name + "' has " + std::to_string(value) +
                              ", expected a whole number from " + std::to_string(low) + " to " +
                              std::to_string(high));
}

}  // namespace

std::map<std::string, Numbers> HideAndSeek::Inspect() const {
  const Simulation::Loaded loaded(&simulation_);
  std::map<std::string, Numbers> numbers;
  const World& world = episode_.world;
  const auto group = [&](int thing) {
    if (thing < agents()) return std::string("agents");
    return std::string(thing < agents() + boxes() ? "boxes" : "ramps");
  };
  for (const char* name : {"agents", "boxes", "ramps"}) {
    for (const char* ending : {"", "_qpos", "_qvel"}) numbers[std::string(name) + ending] = {};
  }
  for (int i = 0; i < things(); ++i) {
    Numbers& poses = numbers[group(i)];
    Append(simulation_.center(i), &poses);
    poses.push_back(simulation_.position(i)[3]);
    Append(simulation_.position(i), &numbers[group(i) + "_qpos"]);
    Append(simulation_.velocity(i), &numbers[group(i) + "_qvel"]);
    if (group(i) == "boxes") {
      for (double half : world.box_half[i - agents()]) poses.push_back(2 * half);
    }
  }
  numbers["walls"] = {};
  numbers["mask_agents"] = {};
  for (int i = 0; i < world.num_walls; ++i) {
    const Wall& wall = world.walls[i];
    Append(std::array{wall.x, wall.y, wall.half_x, wall.half_y, wall.height}, &numbers["walls"]);
  }
  for (int i = 0; i < objects(); ++i) {
    const Lock& lock = episode_.locks[i];
    numbers["locked"].push_back(lock.locked);
    numbers["locked_by"].push_back(lock.locked ? lock.last_locker : -1);
    numbers["last_locker"].push_back(lock.last_locker);
  }
  for (int agent = 0; agent < agents(); ++agent) {
    numbers["grabbed"].push_back(episode_.held[agent]);
    numbers["teams"].push_back(config_.team(agent));
    for (int i = 1; i < agents(); ++i) {
      const int other = (agent - i + agents()) % agents();
      numbers["mask_agents"].push_back(episode_.sees[agent][other]);
    }
    std::array<double, kLidarRays> lidar;
    CastLidar(scene_, agent, lidar);
    Append(lidar, &numbers["lidar"]);
  }
  Append(simulation_.all_positions(), &numbers["qpos"]);
  const std::vector<Field> fields = AllFields(config_, *task_);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    numbers["observation/" + fields[i].name] = {observation_[i].begin(), observation_[i].end()};
  }
  numbers["seen"] = {static_cast<double>(episode_.seen)};
  numbers["step"] = {static_cast<double>(episode_.step)};
  numbers["prep_steps"] = {config_.preparation_steps()};
  numbers["horizon"] = {static_cast<double>(config_.horizon)};
  numbers["floor_size"] = {config_.floor_size};
  numbers["rooms"] = {static_cast<double>(world.rooms)};
  numbers["attempts"] = {static_cast<double>(world.attempts)};
  numbers["task"] = {static_cast<double>(config_.task)};
  for (int i = 0; i < world.num_sites; ++i) {
    Append(std::array{world.sites[i].x, world.sites[i].y}, &numbers["sites"]);
  }
  if (world.cylinder_radius > 0.0) {
    numbers["cylinder"] = {world.cylinder.x, world.cylinder.y, world.cylinder_radius};
  }
  task_->Inspect(view(), &numbers);
  return numbers;
}

void HideAndSeek::Inject(const std::string& name, const Numbers& values) {
  struct Group {
    const char* name;
    int first;
    int count;
  };
  const std::array<Group, 3> groups = {Group{"agents", 0, agents()},
                                       Group{"boxes", agents(), boxes()},
                                       Group{"ramps", agents() + boxes(), config_.ramps}};
  const Simulation::Loaded loaded(&simulation_);
  bool known = false;
  bool moved = false;
  for (const Group& group : groups) {
    const bool positions = name == group.name + std::string("_qpos");
    if (!positions && name != group.name + std::string("_qvel")) continue;
    CheckSize(name, values, static_cast<std::size_t>(kJoints) * group.count);
    if (positions) {
      simulation_.SetPositions(group.first, values);
      moved = true;
    } else {
      simulation_.SetVelocities(group.first, values);
    }
    known = true;
  }
  if (name == "step") {
    CheckSize(name, values, 1);
    episode_.step = CheckedInteger(name, values[0], 0, config_.horizon);
  } else if (name == "last_locker") {
    CheckSize(name, values, objects());
    for (int i = 0; i < objects(); ++i) {
      episode_.locks[i].last_locker = CheckedInteger(name, values[i], 0, agents() - 1);
    }
  } else if (name == "locked_by") {
    InjectLocks(values);
  } else if (!known) {
    Begin(InjectedWorld(name, values));
  }
  Look();
  if (moved && episode_.step == 0) task_->Begin(view());
  Observe();
}

void HideAndSeek::InjectLocks(const Numbers& locked_by) {
  CheckSize("locked_by", locked_by, objects());
  for (int i = 0; i < objects(); ++i) {
    Lock& lock = episode_.locks[i];
    const int locker = CheckedInteger("locked_by", locked_by[i], -1, agents() - 1);
    if (lock.locked) simulation_.Release(i);
    lock.locked = locker >= 0;
    if (!lock.locked) continue;
    lock.last_locker = locker;
    simulation_.Freeze(i);
  }
}

World HideAndSeek::InjectedWorld(const std::string& name, const Numbers& values) {
  World world = episode_.world;
  const auto read_points = [&](Point* points, int count) {
    CheckSize(name, values, 2 * static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) points[i] = {values[2 * i], values[2 * i + 1]};
  };
  if (name == "walls") {
    constexpr int kColumns = 5;
    const std::size_t most = config_.max_walls();
    const std::size_t count = values.size() / kColumns;
    CheckSize(name, values, std::min(count, most) * kColumns);
    world.num_walls = static_cast<int>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const double* wall = values.data() + kColumns * i;
      world.walls[i] = {wall[0], wall[1], wall[2], wall[3], wall[4]};
    }
  } else if (name == "box_sizes") {
    SetBoxSizes(values, &world);
  } else if (name == "food" && config_.food.count > 0) {
    read_points(world.food.data(), config_.food.count);
  } else if (name == "sites" && config_.task == TaskKind::kBlueprint) {
    world.num_sites = std::clamp(static_cast<int>(values.size() / 2), 1, kMaxSites);
    read_points(world.sites.data(), world.num_sites);
  } else if (name == "cylinder" && config_.task == TaskKind::kShelter) {
    CheckSize(name, values, 3);
    world.cylinder = {values[0], values[1]};
    world.cylinder_radius = values[2];
  } else if (name == "lock_order" && config_.task == TaskKind::kSequentialLock) {
    CheckSize(name, values, boxes());
    for (int i = 0; i < boxes(); ++i) {
      world.lock_order[i] = CheckedInteger(name, values[i], 0, boxes() - 1);
    }
  } else if (name == "goes_left" && config_.task == TaskKind::kObjectCounting) {
    CheckSize(name, values, boxes());
    for (int i = 0; i < boxes(); ++i)
      world.goes_left[i] = CheckedInteger(name, values[i], 0, 1) == 1;
  } else {
    Environment::Inject(name, values);  // throws
  }
  return world;
}

void HideAndSeek::SetBoxSizes(const Numbers& values, World* world) const {
  const std::size_t count = values.size() / 3;
  CheckSize("box_sizes", values, std::clamp<std::size_t>(count, 1, config_.boxes_max) * 3);
  // The ramps come after the boxes, however many these are.
  std::array<Point, kMaxRamps> ramps = {};
  std::copy_n(world->corners.begin() + agents() + world->num_boxes, config_.ramps, ramps.begin());
  world->num_boxes = static_cast<int>(count);
  std::copy_n(ramps.begin(), config_.ramps, world->corners.begin() + agents() + world->num_boxes);
  for (std::size_t i = 0; i < count; ++i) {
    for (int axis = 0; axis < 3; ++axis) world->box_half[i][axis] = values[3 * i + axis] / 2;
  }
}

}  // namespace srl::hide_and_seek
