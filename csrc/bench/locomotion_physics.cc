#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "bench/physics.h"
#include "envs/mujoco/engine.h"
#include "envs/mujoco/locomotion.h"

namespace srl::bench {
namespace {

using mujoco::Task;

struct World {
  mujoco::DataPointer data;
  Random random;
  int length = 0;
};

void Step(const Task& task, int hold, World* world) {
  const mjModel* model = task.model().get();
  mjData* data = world->data.get();
  for (int i = 0; i < (world->length % hold == 0 ? model->nu : 0); ++i) {
    const mjtNum* range = model->actuator_ctrlrange + 2 * i;
    data->ctrl[i] = model->actuator_ctrllimited[i] ? world->random.Uniform(range[0], range[1])
                                                   : world->random.Uniform(-1.0, 1.0);
  }
  task.Advance(data);
  const bool limit = ++world->length == task.max_episode_steps();
  if (limit || mujoco::Failed(*data) || task.Terminated(*data)) {
    task.Start(data, world->random);
    world->length = 0;
  }
}

// Steps per second of one thread.
double Rate(const Task& task, std::span<World> worlds, int hold, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::chrono::duration<double> passed{0};
  std::size_t steps = 0;
  while (passed.count() < seconds) {
    for (World& world : worlds) Step(task, hold, &world);
    steps += worlds.size();
    passed = Clock::now() - start;
  }
  return static_cast<double>(steps) / passed.count();
}

// Threads that each have their own environments, an `mjData` for every one of them, random controls
// and the task's own rule of when to start again, without observations and without waiting for
// another thread. A fifth of the seconds goes by first, uncounted.
double RateOf(const Task& task, const PhysicsRun& run) {
  std::vector<World> worlds(static_cast<std::size_t>(std::max(run.num_envs, 0)));
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    worlds[i] = {task.model().MakeData(), Random(i)};
    task.Start(worlds[i].data.get(), worlds[i].random);
  }
  return SumOfRates(run, [&](int first, int end) {
    const auto own = std::span(worlds).subspan(first, end - first);
    // In the first steps of an episode little touches the ground.
    Rate(task, own, run.hold, run.seconds / 5);
    return Rate(task, own, run.hold, run.seconds);
  });
}

const bool registered = [] {
  for (const char* id : {"Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5"}) {
    Measures()[id] = [id](const Options& options, const PhysicsRun& run) {
      return RateOf(*mujoco::Tasks().at(id)(options), run);
    };
  }
  return true;
}();

}  // namespace
}  // namespace srl::bench
