// What a pool refuses: wrong calls, and numbers that are not finite; and the faults it tells of.

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "pool/pool.h"

namespace srl {
namespace {

// Whether all numbers are finite. By their bits, which vector units compare many at a time.
bool Finite(const float* values, std::size_t count) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu;
    bad |= static_cast<std::int32_t>(bits) >= 0x7f800000;
  }
  return bad == 0;
}

bool Finite(const double* values, std::size_t count) {
  return std::all_of(values, values + count, [](double x) { return std::isfinite(x); });
}

// Whether each action lies between 0 and its count of choices.
bool InRange(std::span<const std::int32_t> actions, const std::vector<int>& nvec) {
  std::uint32_t bad = 0;
  if (nvec.size() == 1) {
    const auto choices = static_cast<std::uint32_t>(nvec[0]);
    for (std::int32_t action : actions) bad |= static_cast<std::uint32_t>(action) >= choices;
    return bad == 0;
  }
  for (std::size_t i = 0; i < actions.size(); i += nvec.size()) {
    for (std::size_t k = 0; k < nvec.size(); ++k) {
      bad |= static_cast<std::uint32_t>(actions[i + k]) >= static_cast<std::uint32_t>(nvec[k]);
    }
  }
  return bad == 0;
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
  for (int id : env_ids) {
    RefuseUnknown(id);
    const Phase phase = phase_[static_cast<std::size_t>(id)];
    if (phase == Phase::kReceived) continue;
    throw std::invalid_argument("environment " + std::to_string(id) +
                                (phase == Phase::kFresh ? " was never reset; call reset first"
                                                        : " is in flight; receive it first"));
  }
  const std::size_t values = actions.size() / ByteSize(specs_.action.dtype);
  if (specs_.action.kind == Space::Kind::kBox) {
    const auto* first = reinterpret_cast<const float*>(actions.data());
    if (Finite(first, values)) return;
    const auto* wrong =
        std::find_if(first, first + values, [](float x) { return !std::isfinite(x); });
    throw std::invalid_argument(ActionName(wrong - first, env_ids) + ": the action is not finite");
  }
  const std::span all(reinterpret_cast<const std::int32_t*>(actions.data()), values);
  if (InRange(all, specs_.action.nvec)) return;
  for (std::size_t i = 0; i < values; ++i) {
    const int count = specs_.action.nvec[i % specs_.action.nvec.size()];
    if (all[i] >= 0 && all[i] < count) continue;
    throw std::invalid_argument(ActionName(static_cast<std::ptrdiff_t>(i), env_ids) + ": action " +
                                std::to_string(all[i]) + ", expected 0 to " +
                                std::to_string(count - 1));
  }
}

// Whose the number at `place` among the actions is.
std::string Pool::ActionName(std::ptrdiff_t place, std::span<const int> env_ids) const {
  const std::size_t slot = static_cast<std::size_t>(place) / specs_.action.Elements();
  const std::size_t agents = specs_.agents.size();
  return "environment " + std::to_string(env_ids[slot / agents]) + ", agent " +
         specs_.agents[slot % agents];
}

void Pool::RefuseRepeats(std::span<const int> env_ids) {
  // Phases serve as marks: Start sets them in any case.
  for (std::size_t i = 0; i < env_ids.size(); ++i) {
    Phase& phase = phase_[static_cast<std::size_t>(env_ids[i])];
    if (phase == Phase::kInFlight) {
      for (int id : env_ids.first(i)) phase_[static_cast<std::size_t>(id)] = Phase::kReceived;
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

// Finds environments that gave a number that is not finite, which would spoil the learner.
void Pool::CheckFinite(int first, int count, const Rows& rows, Faults& faults) const {
  const std::size_t agents = specs_.agents.size();
  const auto check = [&](const auto* values, std::size_t width, const Field* field) {
    width *= agents;  // numbers of one environment
    if (Finite(values, width * static_cast<std::size_t>(count))) return;
    for (int lane = 0; lane < count; ++lane) {
      const auto is_known = [lane](const Fault& fault) { return fault.lane == lane; };
      if (Finite(values + width * static_cast<std::size_t>(lane), width) ||
          std::any_of(faults.begin(), faults.end(), is_known)) {
        continue;
      }
      const std::string name = !field                ? "reward"
                               : field->name.empty() ? "observation"
                                                     : "observation '" + field->name + "'";
      faults.push_back({lane, "gave a number that is not finite as " + name + ", at step " +
                                  std::to_string(length_[static_cast<std::size_t>(first + lane)]) +
                                  " of its episode"});
    }
  };
  check(rows.reward, 1, nullptr);
  for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
    const Field& field = specs_.observation[i];
    if (field.space.dtype == DType::kFloat32) {
      check(rows.Observation<float>(i), field.space.Elements(), &field);
    } else if (field.space.dtype == DType::kFloat64) {
      check(rows.Observation<double>(i), field.space.Elements(), &field);
    }
  }
}

// Keeps the faults from number `begin` on, for the call that gives out their rows.
void Pool::StoreFaults(int first, const Faults& faults, std::size_t begin) {
  if (begin == faults.size()) return;
  std::lock_guard lock(fault_mutex_);
  for (std::size_t i = begin; i < faults.size(); ++i) {
    const int id = first + faults[i].lane;
    faults_.emplace(id, "environment " + std::to_string(id) + ": " + faults[i].message);
  }
  any_fault_.store(true, std::memory_order_release);
}

// The first fault among these environments, by index; none is kept. Marks them in `faulty_`.
std::string Pool::TakeFault(std::span<const int> env_ids) {
  if (!any_fault_.load(std::memory_order_acquire)) return "";
  std::lock_guard lock(fault_mutex_);
  std::string message;
  int least = num_envs_;
  for (int id : env_ids) {
    const auto found = faults_.find(id);
    faulty_[static_cast<std::size_t>(id)] = found != faults_.end();
    if (found == faults_.end()) continue;
    if (id < least) {
      message = found->second;
      least = id;
    }
    faults_.erase(found);
  }
  any_fault_.store(!faults_.empty(), std::memory_order_release);
  return message;
}

void Pool::ThrowFault(std::span<const int> env_ids) {
  const std::string message = TakeFault(env_ids);
  if (!message.empty()) throw std::runtime_error(message);
}

}  // namespace srl
