// Hide and seek's random worlds, and what can be seen in them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "envs/hide_and_seek/bare_physics.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/hide_and_seek/rays.h"
#include "envs/hide_and_seek/simulation.h"
#include "tests/check.h"

namespace srl::hide_and_seek {
namespace {

Config FullConfig() { return Config(Options({{"scenario", std::string("full")}})); }

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

TEST(NothingOverlapsAtTheStart) {
  const Config config = FullConfig();
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const World world = DrawWorld(config, random);
    struct Box {
      double x, y, half_x, half_y;
    };
    std::vector<Box> all;
    for (int j = 0; j < world.num_walls; ++j) {
      const Wall& wall = world.walls[j];
      all.push_back({wall.x, wall.y, wall.half_x, wall.half_y});
    }
    const std::size_t walls = all.size();
    for (int j = 0; j < config.agents() + world.num_boxes + config.ramps(); ++j) {
      const int box = j - config.agents();
      HalfSize half = {kRampHalf, kRampHalf, 0};
      if (box < 0) half = {kAgentRadius, kAgentRadius, 0};
      if (box >= 0 && box < world.num_boxes) half = world.box_half[box];
      const Point corner = world.corners[j];
      all.push_back({corner.x + half[0], corner.y + half[1], half[0], half[1]});
    }
    for (std::size_t a = walls; a < all.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        CHECK(std::abs(all[a].x - all[b].x) > all[a].half_x + all[b].half_x - 1e-9 ||
              std::abs(all[a].y - all[b].y) > all[a].half_y + all[b].half_y - 1e-9);
      }
    }
  }
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
                direction.data(), nullptr, /*flg_static=*/1, kFirstThingBody + agent, geom,
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

void CheckSight(const Simulation& simulation, const Scene& scene, int agent, int thing) {
  const mjModel& model = simulation.model();
  const int body = kFirstThingBody + thing;
  const mjtNum* target = simulation.data().geom_xpos + 3 * model.body_geomadr[body];
  std::vector<double> direction(3);
  mju_sub3(direction.data(), target, simulation.center(agent).data());
  int geom = -1;
  MujocoRay(simulation, agent, direction, &geom);
  CHECK(geom >= 0);
  CHECK(InSight(scene, agent, thing) == (model.geom_bodyid[geom] == body));
}

TEST(RaysAgreeWithMujoco) {
  for (const Config& config : {FullConfig(), Config(Options())}) {
    Random random(6);
    for (int episode = 0; episode < 12; ++episode) {
      Simulation simulation(config);
      const World world = DrawWorld(config, random);
      simulation.Start(world);
      Scene scene;
      std::vector<double> control(kControls * config.agents());
      const int things = config.agents() + world.num_boxes + config.ramps();
      for (int step = 0; step < 100; ++step) {
        if (step % 10 == 0) {
          for (double& value : control) value = random.Uniform(-0.9, 0.9);
        }
        simulation.Advance(control);
        simulation.FillScene(&scene);
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
      PhysicsAgain again(options, 0, 2, hold);
      for (int i = 0; i < 17; ++i) {  // beyond the end of an episode
        again.Play();
        CHECK(!again.Same());
        again.Again();
        CHECK(again.Same());
      }
    }
  }
}

}  // namespace
}  // namespace srl::hide_and_seek
