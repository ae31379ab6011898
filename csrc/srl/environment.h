// The interface that a native environment implements. Adding one is one file: a class derived
// from Environment, a function that gives its Specs, and a line of SRL_REGISTER_ENVIRONMENT. The
// file is compiled with srl, or into a library of its own that also says SRL_EXPORT_PLUGIN
// (srl/export_plugin.h); it is the same file, and needs these headers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "srl/archive.h"
#include "srl/options.h"
#include "srl/random.h"
#include "srl/specs.h"

namespace srl {

// Where an environment writes what its agents see: its own rows in batch memory, all A agents
// one after the other. The memory is not zeroed beforehand.
struct Rows {
  std::byte* const* observation = nullptr;  // for each field, the first of A consecutive rows
  float* reward = nullptr;                  // [A]
  bool* terminated = nullptr;               // [A]
  bool* truncated = nullptr;                // [A]
  float* statistics = nullptr;              // [S], this episode's so far; final at its end

  template <typename T>
  T* Observation(std::size_t field = 0) const {
    return reinterpret_cast<T*>(observation[field]);
  }
};

// One environment. The pool calls it from one thread at a time, though not always the same, and
// never calls Step after an episode's end without Reset. Anything it throws ends the pool's call
// with the environment's index and the message. Equal seeds and equal actions must give equal
// trajectories: all chance comes from `random`.
class Environment {
 public:
  virtual ~Environment() = default;

  // Starts an episode. Chance continues from `random` as it stands.
  virtual void Reset(Random& random) = 0;

  // Advances one step. `action` holds the A agents' actions one after the other, already
  // checked against the action space.
  virtual void Step(const std::byte* action, Random& random) = 0;

  // Writes the present observation, and the reward and flags of the last step (0 and false after
  // a reset). Called once after each Reset and Step.
  virtual void Write(const Rows& rows) const = 0;

  // Saves or restores all that the future depends on, besides `random`.
  virtual void Serialize(Archive& archive) = 0;

  // Named numbers for drawing and debugging, such as positions; not on the fast path.
  virtual std::map<std::string, std::vector<double>> Inspect() const { return {}; }

  // Sets numbers that Inspect names, for tests that need a chosen state. Throws
  // std::invalid_argument for a name or a size that does not fit.
  virtual void Inject(const std::string& name, const std::vector<double>& /*values*/) {
    throw std::invalid_argument("this environment has no number '" + name + "' that can be set");
  }

  // A MuJoCo model as written by mj_saveModel, for rendering; empty where there is none.
  virtual std::vector<std::byte> Model() const { return {}; }
};

class VectorEnvironment;

struct EnvironmentType {
  std::function<Specs(const Options&)> specs;
  std::function<std::unique_ptr<Environment>(const Options&)> make;
  // In place of `make`, where all environments of a pool are one object.
  std::function<std::unique_ptr<VectorEnvironment>(const Options&, int num_envs)> make_all = {};
};

// The registered environments by id, such as "CartPole-v1": written before main, and when a
// library of further ones is loaded. Hidden, so that each library has a registry of its own.
[[gnu::visibility("hidden")]] inline std::map<std::string, EnvironmentType>& Registry() {
  static std::map<std::string, EnvironmentType> registry;
  return registry;
}

struct Registration {
  Registration(const std::string& id, EnvironmentType type) { Registry()[id] = std::move(type); }
};

// Registers `Type`, which has `static Specs MakeSpecs(const Options&)` and a constructor from
// `const Options&`.
#define SRL_REGISTER_ENVIRONMENT(id, Type)                                                \
  static const ::srl::Registration registration_of_##Type(                                \
      id, {&Type::MakeSpecs, [](const ::srl::Options& options) {                          \
             return std::unique_ptr<::srl::Environment>(std::make_unique<Type>(options)); \
           }})

}  // namespace srl
