#include "plugin/plugin.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>

#include "plugin/plugin_environment.h"
#include "srl/environment.h"
#include "srl/plugin.h"

namespace srl {
namespace {

using Entry = const SrlPlugin* (*)();

// Differs between a file and another that was put at its path.
using Identity = std::array<std::int64_t, 5>;

struct Loaded {
  Identity identity;
  std::vector<std::string> names;
};

Identity IdentityOf(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) {
    throw std::invalid_argument("cannot read " + path + ": " + std::strerror(errno));
  }
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino),
          static_cast<std::int64_t>(status.st_size), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

const SrlPlugin& Open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::invalid_argument("this file cannot be loaded as a shared library: " +
                                std::string(dlerror()));
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "srl_plugin"));
  if (entry == nullptr) {
    throw std::invalid_argument(
        path +
        " is a shared library, but none of environments: it has no function srl_plugin; "
        "write SRL_EXPORT_PLUGIN; in one of its files");
  }
  const SrlPlugin* plugin = entry();
  if (plugin == nullptr) throw std::invalid_argument(path + ": srl_plugin() gave nothing");
  if (plugin->major != SRL_PLUGIN_MAJOR || plugin->minor > SRL_PLUGIN_MINOR) {
    const auto version = [](std::uint32_t major, std::uint32_t minor) {
      return std::to_string(major) + "." + std::to_string(minor);
    };
    throw std::invalid_argument(
        path + " was built for version " + version(plugin->major, plugin->minor) +
        " of srl's plug-in interface, and this srl has " +
        version(SRL_PLUGIN_MAJOR, SRL_PLUGIN_MINOR) + ": build it against this srl's headers");
  }
  return *plugin;
}

// The types by name, each with what an older version of the interface lacks as null.
std::map<std::string, PluginType> TypesOf(const std::string& path, const SrlPlugin& plugin) {
  std::map<std::string, PluginType> types;
  for (std::size_t i = 0; i < plugin.num_types; ++i) {
    const SrlEnvironmentType* given = plugin.types[i];
    PluginType type{given, {}};
    if (given != nullptr) {
      std::memcpy(&type.table, given, std::min(given->size, sizeof(type.table)));
    }
    const SrlEnvironmentType& table = type.table;
    if (table.name == nullptr || !table.describe || !table.make || !table.destroy || !table.reset ||
        !table.step || !table.write || !table.save || !table.load) {
      throw std::invalid_argument(path + ": its environment " + std::to_string(i) + " (" +
                                  (table.name ? table.name : "without a name") +
                                  ") lacks functions that plugin.h asks for");
    }
    if (!types.emplace(table.name, type).second) {
      throw std::invalid_argument(path + " has two environments " + table.name);
    }
  }
  if (types.empty()) {
    throw std::invalid_argument(path + " has no environments: SRL_REGISTER_ENVIRONMENT adds one");
  }
  return types;
}

}  // namespace

std::vector<std::string> LoadPlugin(const std::string& path) {
  static std::map<std::string, Loaded> all_loaded;
  const Identity identity = IdentityOf(path);
  const auto before = all_loaded.find(path);
  if (before != all_loaded.end()) {
    if (before->second.identity == identity) return before->second.names;
    throw std::invalid_argument(path + " was built again after this process loaded it; start a " +
                                "new process to use the new one");
  }
  Loaded loaded{identity, {}};
  for (const auto& [name, type] : TypesOf(path, Open(path))) {
    loaded.names.push_back(name);
    Registry()[path + ":" + name] = {
        [type](const Options& options) { return DescribePlugin(type, options); },
        [type](const Options& options) { return MakePlugin(type, options); }};
  }
  return all_loaded.emplace(path, std::move(loaded)).first->second.names;
}

}  // namespace srl
