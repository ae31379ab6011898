// The arrays that an agent of hide-and-seek observes.
#pragma once

#include <vector>

#include "envs/hide_and_seek/config.h"
#include "srl/specs.h"

namespace srl::hide_and_seek {

// By number, in the order of ObservationFields.
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
// In the full game, objects have their sizes and locks as well.
inline int BoxColumns(const Config& config) { return config.full() ? 15 : 12; }
inline int RampColumns(const Config& config) { return config.full() ? 15 : 9; }

std::vector<Field> ObservationFields(const Config& config);

}  // namespace srl::hide_and_seek
