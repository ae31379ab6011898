// The arrays that an agent of hide-and-seek observes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "envs/hide_and_seek/config.h"
#include "srl/specs.h"

namespace srl::hide_and_seek {

// By number, in the order of WorldFields. The task's own come after all of these.
enum FieldIndex {
  kObservationSelf,
  kAgentQposQvel,
  kBoxObs,
  kRampObs,
  kLidar,
  kMaskAaObs,
  kMaskAbObs,
  kMaskArObs,
  kMaskAbObsSpoof,
};

inline constexpr int kAgentColumns = 10;
// Sizes are observed where they differ, and locks where there can be any. Worlds of the transfer
// tasks have all columns of the full game, so that its policies can act in them.
inline int BoxColumns(const Config& config) { return config.observes_sizes() ? 15 : 12; }
inline int RampColumns(const Config& config) {
  return 9 + (config.observes_sizes() ? 3 : 0) + (config.lock_ramps ? 3 : 0);
}
// Where there are no others or no ramps there is one row of zeros that nobody sees.
inline int OtherRows(const Config& config) { return std::max(1, config.agents() - 1); }
inline int RampRows(const Config& config) { return std::max(1, config.ramps); }

// Numbers without bounds.
Field NumbersField(const std::string& name, std::vector<int> shape);
// Ones and zeros.
Field MaskField(const std::string& name, int size);

// What every task observes.
std::vector<Field> WorldFields(const Config& config);

}  // namespace srl::hide_and_seek
