// What a pool refuses: wrong calls, and numbers that are not finite.

#include <cmath>
#include <stdexcept>

#include "pool/pool.h"

namespace srl {
namespace {

// Whether all numbers are finite; 0 x is 0 for these alone.
template <typename T>
bool Finite(const T* values, std::size_t count) {
  T sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += T{0} * values[i];
  return sum == T{0};
}

}  // namespace

void Pool::RefuseUnlessIdle(const char* call) const {
  if (!synchronous()) {
    throw std::invalid_argument(std::string(call) + " gives all environments, but batch_size is " +
                                std::to_string(batch_size_) + " of " + std::to_string(num_envs_) +
                                "; call async_reset, send and recv");
  }
  RefuseInFlight(call);
}

void Pool::RefuseInFlight(const char* call) const {
  if (in_flight_ > 0) {
    throw std::invalid_argument(std::string(call) + ": " + std::to_string(in_flight_) +
                                " environments are in flight; receive them first");
  }
}

void Pool::RefuseUnknown(int env_id) const {
  if (env_id >= 0 && env_id < num_envs_) return;
  throw std::invalid_argument("environment id " + std::to_string(env_id) + ", expected 0 to " +
                              std::to_string(num_envs_ - 1));
}

void Pool::CheckActions(std::span<const std::byte> actions, std::span<const int> env_ids) const {
  if (actions.size() != env_ids.size() * action_bytes_) {
    throw std::invalid_argument("actions have " + std::to_string(actions.size()) +
                                " bytes, expected " + std::to_string(action_bytes_) +
                                " for each of " + std::to_string(env_ids.size()) + " environments");
  }
  const std::size_t elements = specs_.action.Elements();
  const std::size_t agents = specs_.agents.size();
  const bool discrete = specs_.action.kind != Space::Kind::kBox;
  for (std::size_t i = 0; i < env_ids.size(); ++i) {
    const int id = env_ids[i];
    RefuseUnknown(id);
    const Phase phase = slots_[static_cast<std::size_t>(id)].phase;
    if (phase != Phase::kReceived) {
      throw std::invalid_argument("environment " + std::to_string(id) +
                                  (phase == Phase::kFresh ? " was never reset; call reset first"
                                                          : " is in flight; receive it first"));
    }
    const std::byte* action = actions.data() + i * action_bytes_;
    for (std::size_t k = 0; k < elements * agents; ++k) {
      if (discrete) {
        const int value = reinterpret_cast<const std::int32_t*>(action)[k];
        const int count = specs_.action.nvec[k % elements];
        if (value >= 0 && value < count) continue;
        throw std::invalid_argument(
            "environment " + std::to_string(id) + ", agent " + specs_.agents[k / elements] +
            ": action " + std::to_string(value) + ", expected 0 to " + std::to_string(count - 1));
      }
      if (!std::isfinite(reinterpret_cast<const float*>(action)[k])) {
        throw std::invalid_argument("environment " + std::to_string(id) + ", agent " +
                                    specs_.agents[k / elements] + ": the action is not finite");
      }
    }
  }
}

void Pool::RefuseRepeats(std::span<const int> env_ids) {
  // Phases serve as marks: Start sets them in any case.
  for (std::size_t i = 0; i < env_ids.size(); ++i) {
    Phase& phase = slots_[static_cast<std::size_t>(env_ids[i])].phase;
    if (phase == Phase::kInFlight) {
      for (int id : env_ids.first(i)) slots_[static_cast<std::size_t>(id)].phase = Phase::kReceived;
      throw std::invalid_argument("environment " + std::to_string(env_ids[i]) +
                                  " is named twice in one call");
    }
    phase = Phase::kInFlight;
  }
}

// Refuses work whose results would have no provided batch to go to.
void Pool::RefuseWithoutMemory(int rows) const {
  const std::uint64_t room = (provided_ - received_) * static_cast<std::uint64_t>(batch_size_);
  if (static_cast<std::uint64_t>(rows) > room) {
    throw std::invalid_argument("too few batches are provided for the results");
  }
}

// Throws where an environment gave a number that is not finite, which would spoil the learner.
void Pool::CheckFinite(const Rows& rows, int step) const {
  const std::size_t agents = specs_.agents.size();
  bool finite = Finite(rows.reward, agents);
  std::string name = "reward";
  for (std::size_t i = 0; finite && i < specs_.observation.size(); ++i) {
    const Field& field = specs_.observation[i];
    const std::size_t count = agents * field.space.Elements();
    if (field.space.dtype == DType::kFloat32) {
      finite = Finite(rows.Observation<float>(i), count);
    } else if (field.space.dtype == DType::kFloat64) {
      finite = Finite(rows.Observation<double>(i), count);
    }
    name = field.name.empty() ? "observation" : "observation '" + field.name + "'";
  }
  if (finite) return;
  throw std::runtime_error("gave a number that is not finite as " + name + ", at step " +
                           std::to_string(step) + " of its episode");
}

}  // namespace srl
