// Hide and seek's random worlds, and what can be seen in them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/hide_and_seek_physics.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/rays.h"
#include "envs/hide_and_seek/simulation.h"
#include "tests/check.h"

namespace srl::hide_and_seek {
namespace {

Config FullConfig() { return Config(Options({{"scenario", std::string("full")}})); }
Config TaskConfig(const std::string& task) { return Config(Options({{"task", task}})); }

// One of each kind of world.
std::vector<Config> AllConfigs() {
  std::vector<Config> configs = {FullConfig()};
  for (const char* task : kTaskNames) configs.push_back(TaskConfig(task));
  return configs;
}

bool Between(double value, double low, double high) { return low <= value && value <= high; }

TEST(FullWorldsFollowThePublishedDistributions) {
  constexpr int kWorlds = 3000;
  const Config config = FullConfig();
  Random random(3);
  std::array<int, 10> boxes = {};
  std::array<int, 10> elongated = {};
  std::array<int, 5> rooms = {};
  int attempts = 0;
  int open = 0;
  for (int i = 0; i < kWorlds; ++i) {
    const World world = DrawWorld(config, random);
    ++boxes[world.num_boxes];
    const auto end = world.box_half.begin() + world.num_boxes;
    ++elongated[std::count_if(world.box_half.begin(), end,
                              [](const HalfSize& half) { return half[0] != half[1]; })];
    ++rooms[world.rooms];
    attempts += world.attempts;
    open += world.num_walls == 0 || world.walls[0].height < 1.0;
  }
  const auto share = [](int count) { return static_cast<double>(count) / kWorlds; };
  for (int i = 3; i <= 9; ++i) CHECK(Between(share(boxes[i]), 0.11, 0.17));
  constexpr std::array kElongated = {0.37, 0.23, 0.15, 0.12, 0.07, 0.05, 0.02};
  for (int i = 0; i < 7; ++i) CHECK(std::abs(share(elongated[i + 3]) - kElongated[i]) < 0.03);
  constexpr std::array kRooms = {0.28, 0.25, 0.24, 0.23};
  for (int i = 0; i < 4; ++i) CHECK(std::abs(share(rooms[i + 1]) - kRooms[i]) < 0.035);
  CHECK(Between(share(attempts), 1.03, 1.08));
  CHECK(Between(share(open), 0.46, 0.54));
}

struct Rectangle {
  double x, y, half_x, half_y;
};

// Everything that has a place on the floor: walls first, then the cylinder, then what moves.
std::vector<Rectangle> Rectangles(const Config& config, const World& world) {
  std::vector<Rectangle> all;
  for (int i = 0; i < world.num_walls; ++i) {
    const Wall& wall = world.walls[i];
    all.push_back({wall.x, wall.y, wall.half_x, wall.half_y});
  }
  if (world.cylinder_radius > 0.0) {
    const double radius = world.cylinder_radius;
    all.push_back({world.cylinder.x, world.cylinder.y, radius, radius});
  }
  for (int i = 0; i < config.agents() + world.num_boxes + config.ramps; ++i) {
    const int box = i - config.agents();
    HalfSize half = {kRampHalf, kRampHalf, 0};
    if (box < 0) half = {kAgentRadius, kAgentRadius, 0};
    if (box >= 0 && box < world.num_boxes) half = world.box_half[box];
    const Point corner = world.corners[i];
    all.push_back({corner.x + half[0], corner.y + half[1], half[0], half[1]});
  }
  return all;
}

TEST(NothingOverlapsAtTheStart) {
  for (const Config& config : AllConfigs()) {
    Random random(5);
    for (int i = 0; i < 200; ++i) {
      const World world = DrawWorld(config, random);
      const std::vector<Rectangle> all = Rectangles(config, world);
      for (std::size_t a = world.num_walls; a < all.size(); ++a) {
        CHECK(Between(all[a].x, 0.15, 5.85) && Between(all[a].y, 0.15, 5.85));
        for (std::size_t b = 0; b < a; ++b) {
          CHECK(std::abs(all[a].x - all[b].x) > all[a].half_x + all[b].half_x - 1e-9 ||
                std::abs(all[a].y - all[b].y) > all[a].half_y + all[b].half_y - 1e-9);
        }
      }
    }
  }
}

TEST(TasksFurnishTheirWorldsAsPublished) {
  Random random(7);
  std::array<int, kMaxSites + 1> sites = {};
  double min_radius = 1.0;
  double max_radius = 0.75;
  for (int i = 0; i < 400; ++i) {
    const World lock = DrawWorld(TaskConfig("lock_and_return"), random);
    CHECK(lock.rooms == 6 && lock.num_boxes == 1 && lock.walls[0].height == 4.0);
    const World blueprint = DrawWorld(TaskConfig("blueprint"), random);
    CHECK(blueprint.num_boxes == 8 && blueprint.num_walls == 4);
    ++sites[blueprint.num_sites];
    for (int site = 0; site < blueprint.num_sites; ++site) {
      CHECK(Between(blueprint.sites[site].x, 0.43, 5.14));
      CHECK(Between(blueprint.sites[site].y, 0.43, 5.14));
    }
    const World shelter = DrawWorld(TaskConfig("shelter"), random);
    const auto end = shelter.box_half.begin() + shelter.num_boxes;
    CHECK(shelter.num_boxes == 8);
    CHECK(std::count(shelter.box_half.begin(), end, kCubeHalf) == 5);
    min_radius = std::min(min_radius, shelter.cylinder_radius);
    max_radius = std::max(max_radius, shelter.cylinder_radius);
  }
  for (int i = 1; i <= kMaxSites; ++i) CHECK(Between(sites[i], 60, 140));
  CHECK(Between(min_radius, 0.75, 0.76) && Between(max_radius, 0.99, 1.0));
}

TEST(QuadrantHoldsTheBoxesAndNoSeeker) {
  const Config config{Options()};
  Random random(4);
  int one_door = 0;
  for (int i = 0; i < 500; ++i) {
    const World world = DrawWorld(config, random);
    const auto inside = [&world](int thing, double size) {
      const Point corner = world.corners[thing];
      return corner.x >= 3.0 && corner.y >= 0.2 && corner.y + size <= 3.0;
    };
    CHECK(world.num_boxes == 2);
    CHECK(inside(config.agents(), 0.5) && inside(config.agents() + 1, 0.5));
    CHECK(!inside(config.hiders, 0.3) && !inside(config.hiders + 1, 0.3));
    CHECK(world.walls[0].height == 4.0 && world.walls[4].height == 0.5);
    for (int wall = 4; wall < world.num_walls; ++wall) {
      one_door += world.walls[wall].half_y > 1.44 || world.walls[wall].half_x > 1.34;
    }
  }
  CHECK(Between(one_door / 500.0, 0.42, 0.58));
}

// The reference for rays: MuJoCo's own.
double MujocoRay(const Simulation& simulation, int agent, const std::vector<double>& direction,
                 int* geom) {
  return mj_ray(&simulation.model(), &simulation.data(), simulation.center(agent).data(),
                direction.data(), nullptr, /*flg_static=*/1, simulation.first_body() + agent, geom,
                nullptr);
}

void CheckLidar(const Simulation& simulation, const Scene& scene, int agent) {
  std::array<double, kLidarRays> lidar;
  CastLidar(scene, agent, lidar);
  for (int i = 0; i < kLidarRays; ++i) {
    const double angle = 2 * std::numbers::pi * i / kLidarRays;
    int geom = -1;
    const double expected =
        MujocoRay(simulation, agent, {std::cos(angle), std::sin(angle), 0}, &geom);
    CHECK(std::abs(lidar[i] - (geom < 0 ? kLidarNothing : expected)) < 1e-6);
  }
}

// The rays of the shelter: along the floor and a little upward, from points at the border.
void CheckCylinder(const Simulation& simulation, const Scene& scene, Random& random) {
  const mjModel& model = simulation.model();
  const int cylinder = model.ngeom - 1;
  for (int i = 0; i < 20; ++i) {
    const std::array from = {random.Uniform(0.2, 5.8), 0.202, 0.0};
    std::array<double, 3> direction;
    mju_sub3(direction.data(), simulation.data().geom_xpos + 3 * cylinder, from.data());
    int geom = -1;
    // The floor, on which the ray begins, is in a group of its own for this purpose.
    mjtByte groups[mjNGROUP] = {1, 0, 0, 0, 0, 0};
    model.geom_group[0] = 1;
    mj_ray(&model, &simulation.data(), from.data(), direction.data(), groups, /*flg_static=*/1,
           /*bodyexclude=*/-1, &geom, nullptr);
    CHECK(CylinderInSight(scene, from) == (geom == cylinder));
  }
}

void CheckSight(const Simulation& simulation, const Scene& scene, int agent, int thing) {
  const mjModel& model = simulation.model();
  const int body = simulation.first_body() + thing;
  const mjtNum* target = simulation.data().geom_xpos + 3 * model.body_geomadr[body];
  std::vector<double> direction(3);
  mju_sub3(direction.data(), target, simulation.center(agent).data());
  int geom = -1;
  MujocoRay(simulation, agent, direction, &geom);
  CHECK(geom >= 0);
  CHECK(InSight(scene, agent, thing) == (model.geom_bodyid[geom] == body));
}

TEST(RaysAgreeWithMujoco) {
  for (const Config& config : AllConfigs()) {
    Random random(6);
    for (int episode = 0; episode < (config.is_game() ? 12 : 3); ++episode) {
      Simulation simulation(config);
      const Simulation::Loaded loaded(&simulation);
      const World world = DrawWorld(config, random);
      simulation.Start(world);
      Scene scene;
      std::vector<double> control(kControls * config.agents());
      const int things = config.agents() + world.num_boxes + config.ramps;
      for (int step = 0; step < 100; ++step) {
        if (step % 10 == 0) {
          for (double& value : control) value = random.Uniform(-0.9, 0.9);
        }
        simulation.Advance(control);
        simulation.FillScene(&scene);
        if (config.task == TaskKind::kShelter) CheckCylinder(simulation, scene, random);
        for (int agent = 0; agent < config.agents(); ++agent) {
          CheckLidar(simulation, scene, agent);
          for (int thing = 0; thing < things; ++thing) {
            if (thing != agent) CheckSight(simulation, scene, agent, thing);
          }
        }
      }
    }
  }
}

TEST(FatalMujocoErrorsBecomeExceptions) {
  Registry().at("HideAndSeek-v1").make(Options());
  bool caught = false;
  try {
    mju_error("no more %s", "coffee");
  } catch (const std::runtime_error& error) {
    caught = std::string(error.what()).find("no more coffee") != std::string::npos;
  }
  CHECK(caught);
}

TEST(PhysicsDoneAgainIsThatOfTheGame) {
  for (bool sleep : {false, true}) {
    for (int hold : {1, 10}) {
      const Options options({{"scenario", std::string("full")}, {"sleep", sleep}});
      bench::PhysicsReplay replay(options, 0, 2, hold);
      for (int i = 0; i < 17; ++i) {  // beyond the end of an episode
        replay.Play();
        CHECK(!replay.Same());
        replay.Replay();
        CHECK(replay.Same());
      }
    }
  }
}

}  // namespace
}  // namespace srl::hide_and_seek
