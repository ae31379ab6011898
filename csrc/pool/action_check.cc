#include "pool/action_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "pool/finite.h"

namespace srl {
namespace {

// Whether each action lies between 0 and its number of choices.
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

// Which agent's action number `index` is.
std::string AgentOf(const Specs& specs, std::size_t index, std::span<const int> env_ids) {
  const std::size_t slot = index / specs.action.Elements();
  const std::size_t agents = specs.agents.size();
  return "environment " + std::to_string(env_ids[slot / agents]) + ", agent " +
         specs.agents[slot % agents];
}

}  // namespace

void CheckInSpace(const Specs& specs, std::span<const std::byte> actions,
                  std::span<const int> env_ids) {
  const std::size_t count = actions.size() / ByteSize(specs.action.dtype);
  if (specs.action.kind == Space::Kind::kBox) {
    const auto* first = reinterpret_cast<const float*>(actions.data());
    if (AllFinite(first, count)) return;
    const auto* wrong =
        std::find_if(first, first + count, [](float x) { return !std::isfinite(x); });
    throw std::invalid_argument(AgentOf(specs, static_cast<std::size_t>(wrong - first), env_ids) +
                                ": the action is not finite");
  }
  const std::span all(reinterpret_cast<const std::int32_t*>(actions.data()), count);
  const std::vector<int>& nvec = specs.action.nvec;
  if (InRange(all, nvec)) return;
  for (std::size_t i = 0; i < count; ++i) {
    const int choices = nvec[i % nvec.size()];
    if (all[i] >= 0 && all[i] < choices) continue;
    throw std::invalid_argument(AgentOf(specs, i, env_ids) + ": action " + std::to_string(all[i]) +
                                ", expected 0 to " + std::to_string(choices - 1));
  }
}

}  // namespace srl
