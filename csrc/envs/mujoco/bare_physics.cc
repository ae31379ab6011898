#include <algorithm>
#include <chrono>
#include <future>
#include <span>
#include <stdexcept>
#include <thread>

#include "envs/mujoco/locomotion.h"

namespace srl::mujoco {
namespace {

struct World {
  DataPointer data;
  Random random;
  int length = 0;
};

void Step(const Task& task, World* world) {
  const mjModel* model = task.model().get();
  mjData* data = world->data.get();
  for (int i = 0; i < model->nu; ++i) {
    const mjtNum* range = model->actuator_ctrlrange + 2 * i;
    data->ctrl[i] = model->actuator_ctrllimited[i] ? world->random.Uniform(range[0], range[1])
                                                   : world->random.Uniform(-1.0, 1.0);
  }
  task.Advance(data);
  const bool limit = ++world->length == task.max_episode_steps();
  if (limit || Failed(*data) || task.Terminated(*data)) {
    task.Start(data, world->random);
    world->length = 0;
  }
}

// Steps per second of one thread.
double Rate(const Task& task, std::span<World> worlds, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::chrono::duration<double> passed{0};
  std::size_t steps = 0;
  while (passed.count() < seconds) {
    for (World& world : worlds) Step(task, &world);
    steps += worlds.size();
    passed = Clock::now() - start;
  }
  return static_cast<double>(steps) / passed.count();
}

}  // namespace

double BarePhysics(const Task& task, int num_envs, int threads, double seconds) {
  if (num_envs < 1 || threads < 0 || !(seconds > 0)) {
    throw std::invalid_argument(
        "num_envs = " + std::to_string(num_envs) + ", threads = " + std::to_string(threads) +
        ", seconds = " + std::to_string(seconds) + "; expected at least 1, 0 and more than 0");
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads = std::min(threads == 0 ? cores : threads, num_envs);
  std::vector<World> worlds(static_cast<std::size_t>(num_envs));
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    worlds[i] = {task.model().MakeData(), Random(i)};
    task.Start(worlds[i].data.get(), worlds[i].random);
  }
  std::vector<std::future<double>> rates;
  for (int i = 0; i < threads; ++i) {
    const auto first = static_cast<std::size_t>(num_envs) * i / threads;
    const auto end = static_cast<std::size_t>(num_envs) * (i + 1) / threads;
    rates.push_back(std::async(std::launch::async, [&task, &worlds, first, end, seconds] {
      const auto own = std::span(worlds).subspan(first, end - first);
      Rate(task, own, seconds / 5);  // in the first steps of an episode little touches the ground
      return Rate(task, own, seconds);
    }));
  }
  double sum = 0.0;
  for (std::future<double>& rate : rates) sum += rate.get();
  return sum;
}

}  // namespace srl::mujoco
