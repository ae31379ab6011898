// Whether actions are in the action space.
#pragma once

#include <cstddef>
#include <span>

#include "srl/specs.h"

namespace srl {

// Throws std::invalid_argument, naming environment and agent, for an action that is not finite or
// is out of its range. `actions` are those of the environments named, of all agents of each.
void CheckInSpace(const Specs& specs, std::span<const std::byte> actions,
                  std::span<const int> env_ids);

}  // namespace srl
