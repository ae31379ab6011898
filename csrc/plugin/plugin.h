// Loads libraries of environments that were compiled elsewhere.
#pragma once

#include <string>
#include <vector>

namespace srl {

// Loads the library at `path`, which is absolute, and registers its environments as "path:name".
// Gives their names. Loading it again gives the same.
//
// A library stays loaded until the process ends. Throws std::invalid_argument for a file that is
// no library of environments for this srl, or that was built again since it was loaded. One thread
// at a time may call, and no pool may be made meanwhile.
std::vector<std::string> LoadPlugin(const std::string& path);

}  // namespace srl
