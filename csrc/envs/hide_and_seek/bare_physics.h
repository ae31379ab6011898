// How fast hide and seek could be at best.
#pragma once

#include "envs/hide_and_seek/hide_and_seek.h"

namespace srl::hide_and_seek {

// Games played with random actions, and their physics alone, done again.
class PhysicsAgain {
 public:
  // Env steps that are played before their physics is done again.
  static constexpr int kStretch = 16;

  // Each agent keeps an action for `hold` steps, and no two change theirs in step.
  PhysicsAgain(const Options& options, int first, int end, int hold);

  // Plays a stretch with every game, none of which is timed.
  void Play();

  // Does the physics of that stretch, one step of each game after the other.
  void Again();

  // Env steps in a stretch, of all games.
  int steps() const { return kStretch * static_cast<int>(games_.size()); }

  // Whether both ended in the same states, bit by bit.
  bool Same() const;

 private:
  struct Game {
    Game(const Options& options, int seed) : environment(options), random(seed) {}
    void Copy();  // the model and the data, as they now are

    HideAndSeek environment;
    Random random;
    std::vector<std::int32_t> action;  // of all agents
    int step = 0;                      // of the episode
    int steps = 0;
    ModelPointer model;  // as they were before the stretch
    DataPointer data;
    std::vector<StepSettings> tape;
  };

  void PlayStep(Game* game);

  Specs specs_;
  int hold_;
  std::vector<std::unique_ptr<Game>> games_;
};

// Env steps per second of the physics alone: with the models, states, controls, locks and welds of
// games, on as many threads.
double BarePhysics(const Options& options, const PhysicsRun& run);

}  // namespace srl::hide_and_seek
