// How fast native environments could be at best: `srl bench pool --vs physics`.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "srl/options.h"

namespace srl::bench {

// What is to be measured.
struct PhysicsRun {
  int num_envs = 1;
  int threads = 0;       // 0 takes one for each core
  double seconds = 5.0;  // of measuring
  int hold = 1;          // env steps for which random controls stay
};

// Env steps per second of an environment's physics alone, without a pool. Throws
// std::invalid_argument for an environment that has no physics engine, and for numbers that are
// too small.
double PhysicsRate(const std::string& id, const Options& options, const PhysicsRun& run);

// What measures an environment, by its id; written before main.
using Measure = std::function<double(const Options&, const PhysicsRun&)>;
std::map<std::string, Measure>& Measures();

// The sum of what `rate(first, end)` gives for shares of the environments, each in a thread of its
// own. Throws std::invalid_argument for numbers that are too small.
double SumOfRates(const PhysicsRun& run, const std::function<double(int first, int end)>& rate);

}  // namespace srl::bench
