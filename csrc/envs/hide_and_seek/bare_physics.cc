#include "envs/hide_and_seek/bare_physics.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace srl::hide_and_seek {

PhysicsAgain::PhysicsAgain(const Options& options, int first, int end, int hold)
    : specs_(HideAndSeek::MakeSpecs(options)), hold_(hold) {
  for (int i = first; i < end; ++i) {
    games_.push_back(std::make_unique<Game>(options, i));
    Game& game = *games_.back();
    game.environment.Reset(game.random);
    game.action.resize(specs_.agents.size() * specs_.action.nvec.size());
  }
}

void PhysicsAgain::PlayStep(Game* game) {
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

void PhysicsAgain::Play() {
  for (const auto& game : games_) {
    // A stretch lies within an episode: the physics is not to be charged for beginning one.
    const Simulation* simulation = &game->environment.simulation();
    if (game->step + kStretch > specs_.max_episode_steps || simulation->diverged()) {
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

void PhysicsAgain::Game::Copy() {
  const mjModel& from = environment.simulation().model();
  // Into the memory of the last copy, which is warm as the game's own is.
  if (model && model->nq == from.nq) {
    mj_copyModel(model.get(), &from);
    mj_copyData(data.get(), &from, &environment.simulation().data());
  } else {
    model.reset(mj_copyModel(nullptr, &from));
    data.reset(mj_copyData(nullptr, &from, &environment.simulation().data()));
  }
}

void PhysicsAgain::Again() {
  for (int i = 0; i < kStretch; ++i) {
    for (const auto& game : games_) Replay(game->tape[i], game->model.get(), game->data.get());
  }
}

bool PhysicsAgain::Same() const {
  return std::all_of(games_.begin(), games_.end(), [](const auto& game) {
    const mjData& played = game->environment.simulation().data();
    const mjModel& model = *game->model;
    return std::memcmp(played.qpos, game->data->qpos, sizeof(mjtNum) * model.nq) == 0 &&
           std::memcmp(played.qvel, game->data->qvel, sizeof(mjtNum) * model.nv) == 0;
  });
}

double BarePhysics(const Options& options, const PhysicsRun& run) {
  if (!Config(options).is_game()) {
    throw std::invalid_argument(
        "tasks move things by more than controls, locks and grips, so their physics cannot be done "
        "again: leave out task, or --vs physics");
  }
  return mujoco::SumOfRates(run, [&](int first, int end) {
    using Clock = std::chrono::steady_clock;
    PhysicsAgain again(options, first, end, run.hold);
    const int stretches =
        std::max(1, HideAndSeek::MakeSpecs(options).max_episode_steps / PhysicsAgain::kStretch);
    std::chrono::duration<double> passed{0};
    double steps = 0.0;
    // Whole episodes: they begin with seekers that stand still.
    for (int played = 0; played % stretches != 0 || passed.count() < run.seconds; ++played) {
      again.Play();
      const auto start = Clock::now();
      again.Again();
      passed += Clock::now() - start;
      steps += again.steps();
    }
    return steps / passed.count();
  });
}

}  // namespace srl::hide_and_seek
