#include "bench/hide_and_seek_physics.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "bench/physics.h"

namespace srl::bench {

PhysicsReplay::PhysicsReplay(const Options& options, int first, int end, int hold)
    : specs_(hide_and_seek::HideAndSeek::MakeSpecs(options)), hold_(hold) {
  for (int i = first; i < end; ++i) {
    games_.push_back(std::make_unique<Game>(options, i));
    Game& game = *games_.back();
    game.environment.Reset(game.random);
    game.action.resize(specs_.agents.size() * specs_.action.nvec.size());
  }
}

void PhysicsReplay::PlayStep(Game* game) {
  const std::vector<int>& choices = specs_.action.nvec;
  for (std::size_t i = 0; i < game->action.size(); ++i) {
    const auto agent = static_cast<int>(i / choices.size());
    if (game->steps != 0 && (game->steps + agent) % hold_ != 0) continue;
    game->action[i] = game->random.Integer(0, choices[i % choices.size()] - 1);
  }
  game->environment.Step(reinterpret_cast<const std::byte*>(game->action.data()), game->random);
  ++game->step;
  ++game->steps;
}

void PhysicsReplay::Play() {
  for (const auto& game : games_) {
    // A stretch lies within an episode: the physics is not to be charged for beginning one.
    if (game->step + kStretch > specs_.max_episode_steps || game->Diverged()) {
      game->environment.Reset(game->random);
      game->step = 0;
    }
    game->Copy();
    game->tape.clear();
    game->environment.Record(&game->tape);
    for (int i = 0; i < kStretch; ++i) PlayStep(game.get());
    game->environment.Record(nullptr);
  }
}

bool PhysicsReplay::Game::Diverged() {
  hide_and_seek::Simulation& simulation = environment.simulation();
  const hide_and_seek::Simulation::Loaded loaded(&simulation);
  return simulation.diverged();
}

void PhysicsReplay::Game::Copy() {
  hide_and_seek::Simulation& simulation = environment.simulation();
  const hide_and_seek::Simulation::Loaded loaded(&simulation);
  const mjModel& from = simulation.model();
  // Into the memory of the last copy, which is warm as the game's own is.
  if (model && model->nq == from.nq) {
    mj_copyModel(model.get(), &from);
    mj_copyData(data.get(), &from, &simulation.data());
  } else {
    model.reset(mj_copyModel(nullptr, &from));
    data.reset(mj_copyData(nullptr, &from, &simulation.data()));
  }
}

void PhysicsReplay::Replay() {
  for (int i = 0; i < kStretch; ++i) {
    for (const auto& game : games_)
      hide_and_seek::Replay(game->tape[i], game->model.get(), game->data.get());
  }
}

bool PhysicsReplay::Same() const {
  return std::all_of(games_.begin(), games_.end(), [](const auto& game) {
    hide_and_seek::Simulation& simulation = game->environment.simulation();
    const hide_and_seek::Simulation::Loaded loaded(&simulation);
    const mjData& played = simulation.data();
    const mjModel& model = *game->model;
    return std::memcmp(played.qpos, game->data->qpos, sizeof(mjtNum) * model.nq) == 0 &&
           std::memcmp(played.qvel, game->data->qvel, sizeof(mjtNum) * model.nv) == 0;
  });
}

namespace {

// With the models, states, controls, locks and welds of games, on as many threads.
double RateOf(const Options& options, const PhysicsRun& run) {
  if (!hide_and_seek::Config(options).is_game()) {
    throw std::invalid_argument(
        "tasks move things by more than controls, locks and grips, so their physics cannot be done "
        "again: leave out task, or --vs physics");
  }
  return SumOfRates(run, [&](int first, int end) {
    using Clock = std::chrono::steady_clock;
    PhysicsReplay replay(options, first, end, run.hold);
    const int stretches =
        std::max(1, hide_and_seek::HideAndSeek::MakeSpecs(options).max_episode_steps /
                        PhysicsReplay::kStretch);
    std::chrono::duration<double> passed{0};
    double steps = 0.0;
    // Whole episodes: they begin with seekers that stand still.
    for (int played = 0; played % stretches != 0 || passed.count() < run.seconds; ++played) {
      replay.Play();
      const auto start = Clock::now();
      replay.Replay();
      passed += Clock::now() - start;
      steps += replay.steps();
    }
    return steps / passed.count();
  });
}

const bool registered = Measures().emplace("HideAndSeek-v1", &RateOf).second;

}  // namespace
}  // namespace srl::bench
