// An environment on the other side of the boundary of plugin.h.
#pragma once

#include <memory>

#include "srl/environment.h"
#include "srl/plugin.h"

namespace srl {

// A kind of environment of a loaded library.
struct PluginType {
  const SrlEnvironmentType* self = nullptr;  // as the library knows it
  SrlEnvironmentType table = {};             // its functions; null where it has none
};

// The specs with these options. Throws std::invalid_argument for options that the environment
// refuses, std::runtime_error where it fails or its specs make no sense.
Specs DescribePlugin(const PluginType& type, const Options& options);

// Makes one. Throws as DescribePlugin does.
std::unique_ptr<Environment> MakePlugin(const PluginType& type, const Options& options);

}  // namespace srl
