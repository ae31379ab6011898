// Environments of a few numbers each, whose states lie in arrays so that several step at once.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pool/vector_environment.h"

// The loop is compiled for machines with and without AVX2; which runs is found out at load time.
// Both give the same bits: nothing is fused or reordered.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SRL_FOR_VECTOR_UNITS __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SRL_FOR_VECTOR_UNITS
#endif

namespace srl {

// What a step gives besides the next state.
struct Outcome {
  double reward;
  bool terminated;
};

// All environments of a pool that follow `Dynamics`, which is a plain value with
//
//   kStates, kFeatures        how many numbers its state and its observation have
//   Action                    std::int32_t for Discrete, float for a Box of one number
//   kName                     for messages
//   MakeSpecs(options)        static; the observation is one Box of kFeatures float32
//   Start(random, state)      draws the state of a new episode
//   Step(state, action)       moves on; gives reward and whether the episode terminated
//   Observe(state, features)  writes the observation
//
// Step and Observe must be without branches and calls, for the sake of the vector units; selects
// (a ? b : c) are none.
template <typename Dynamics>
class Vectorized : public VectorEnvironment {
 public:
  Vectorized(const Options& options, int num_envs) : dynamics_(options) {
    const auto count = static_cast<std::size_t>(num_envs);
    for (auto& numbers : states_) numbers.resize(count);
    rewards_.resize(count);
    terminated_ = std::make_unique<bool[]>(count);
  }

  void Step(const Lanes& lanes, Faults&) override {
    const auto first = static_cast<std::size_t>(lanes.first);
    const auto count = static_cast<std::size_t>(lanes.count);
    double* states[kStates];
    for (int k = 0; k < kStates; ++k) states[k] = &states_[k][first];
    StepLanes(dynamics_, states, count, reinterpret_cast<const Action*>(lanes.actions),
              &rewards_[first], &terminated_[first]);

    // Lanes that start an episode were stepped with the others, which is of no consequence.
    for (std::size_t lane = 0; lane < count; ++lane) {
      const void* next = std::memchr(lanes.restart + lane, true, count - lane);
      if (!next) break;
      lane = static_cast<std::size_t>(static_cast<const bool*>(next) - lanes.restart);
      double state[kStates];
      dynamics_.Start(lanes.random[lane], state);
      for (int k = 0; k < kStates; ++k) states[k][lane] = state[k];
      rewards_[first + lane] = 0;
      terminated_[first + lane] = false;
    }
  }

  void Write(int first_lane, int lanes, const Rows& rows, Faults&) const override {
    const auto first = static_cast<std::size_t>(first_lane);
    const auto count = static_cast<std::size_t>(lanes);
    const double* states[kStates];
    for (int k = 0; k < kStates; ++k) states[k] = &states_[k][first];
    ObserveLanes(dynamics_, states, count, rows.Observation<float>());
    std::copy_n(&rewards_[first], count, rows.reward);
    std::copy_n(&terminated_[first], count, rows.terminated);
    std::fill_n(rows.truncated, count, false);
  }

  void Serialize(int index, Archive& archive) override {
    for (auto& numbers : states_) archive.Value(numbers[static_cast<std::size_t>(index)]);
  }

  std::map<std::string, std::vector<double>> Inspect(int index) const override {
    std::vector<double> state;
    for (const auto& numbers : states_) state.push_back(numbers[static_cast<std::size_t>(index)]);
    return {{"state", state}};
  }

  void Inject(int index, const std::string& name, const std::vector<double>& values) override {
    if (name != "state" || values.size() != kStates) {
      throw std::invalid_argument(std::string(Dynamics::kName) + " takes 'state' of " +
                                  std::to_string(kStates) + " numbers, not '" + name + "' of " +
                                  std::to_string(values.size()));
    }
    for (int k = 0; k < kStates; ++k) {
      states_[k][static_cast<std::size_t>(index)] = values[static_cast<std::size_t>(k)];
    }
  }

  std::vector<std::byte> Model(int) const override { return {}; }

 private:
  static constexpr int kStates = Dynamics::kStates;
  static constexpr int kFeatures = Dynamics::kFeatures;
  using Action = typename Dynamics::Action;

  SRL_FOR_VECTOR_UNITS static void StepLanes(const Dynamics& dynamics, double* const* states,
                                             std::size_t count, const Action* __restrict actions,
                                             float* __restrict rewards,
                                             bool* __restrict terminated) {
    const Dynamics local = dynamics;  // so that no store can be thought to change it
    WithPointers(states, [&](auto* __restrict... numbers) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (std::size_t lane = 0; lane < count; ++lane) {
        double state[] = {numbers[lane]...};
        const Outcome outcome = local.Step(state, actions[lane]);
        std::size_t k = 0;
        ((numbers[lane] = state[k++]), ...);
        rewards[lane] = static_cast<float>(outcome.reward);
        terminated[lane] = outcome.terminated;
      }
    });
  }

  SRL_FOR_VECTOR_UNITS static void ObserveLanes(const Dynamics& dynamics,
                                                const double* const* states, std::size_t count,
                                                float* __restrict features) {
    const Dynamics local = dynamics;
    WithPointers(states, [&](auto* __restrict... numbers) __attribute__((always_inline)) {
#pragma GCC ivdep
      for (std::size_t lane = 0; lane < count; ++lane) {
        const double state[] = {numbers[lane]...};
        local.Observe(state, features + lane * kFeatures);
      }
    });
  }

  // Calls `loop` with each array by name, so to speak: the compiler then sees that they differ.
  template <typename Pointer, typename Loop>
  __attribute__((always_inline)) static inline void WithPointers(Pointer const* pointers,
                                                                 const Loop& loop) {
    [&]<std::size_t... k>(std::index_sequence<k...>) __attribute__((always_inline)) {
      loop(pointers[k]...);
    }(std::make_index_sequence<kStates>());
  }

  Dynamics dynamics_;
  std::vector<double> states_[kStates];
  std::vector<float> rewards_;          // of the last step
  std::unique_ptr<bool[]> terminated_;  // by it
};

// Registers environments that follow `Dynamics`.
#define SRL_REGISTER_VECTORIZED(id, Dynamics)                                          \
  static const ::srl::Registration registration_of_##Dynamics(                         \
      id, {&Dynamics::MakeSpecs, {}, [](const ::srl::Options& options, int num_envs) { \
             return std::make_unique<::srl::Vectorized<Dynamics>>(options, num_envs);  \
           }})

}  // namespace srl
