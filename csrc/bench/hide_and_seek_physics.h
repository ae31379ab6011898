// The physics of hide and seek without the game.
#pragma once

#include "envs/hide_and_seek/hide_and_seek.h"

namespace srl::bench {

// Games played with random actions, and their physics alone, done again.
class PhysicsReplay {
 public:
  // Env steps that are played before their physics is done again.
  static constexpr int kStretch = 16;

  // Each agent keeps an action for `hold` steps, and no two change theirs in step.
  PhysicsReplay(const Options& options, int first, int end, int hold);

  // Plays a stretch with every game, none of which is timed.
  void Play();

  // Does the physics of that stretch, one step of each game after the other.
  void Replay();

  // Env steps in a stretch, of all games.
  int steps() const { return kStretch * static_cast<int>(games_.size()); }

  // Whether both ended in the same states, bit by bit.
  bool Same() const;

 private:
  struct Game {
    Game(const Options& options, int seed) : environment(options), random(seed) {}
    bool Diverged();
    void Copy();  // the model and the data, as they now are

    hide_and_seek::HideAndSeek environment;
    Random random;
    std::vector<std::int32_t> action;  // of all agents
    int step = 0;                      // of the episode
    int steps = 0;
    mujoco::ModelPointer model;  // as they were before the stretch
    mujoco::DataPointer data;
    std::vector<hide_and_seek::StepSettings> tape;
  };

  void PlayStep(Game* game);

  Specs specs_;
  int hold_;
  std::vector<std::unique_ptr<Game>> games_;
};

}  // namespace srl::bench
