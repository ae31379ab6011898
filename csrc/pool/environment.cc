#include "pool/environment.h"

#include <stdexcept>

namespace srl {
namespace {

const char* TypeName(const Options::Value& value) {
  static constexpr const char* kNames[] = {"a flag", "an integer", "a number", "a text"};
  return kNames[value.index()];
}

template <typename T>
T GetAs(const std::map<std::string, Options::Value>& values, const std::string& name, T fallback,
        const char* expected) {
  const auto found = values.find(name);
  if (found == values.end()) return fallback;
  if (const T* value = std::get_if<T>(&found->second)) return *value;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* integer = std::get_if<std::int64_t>(&found->second)) {
      return static_cast<double>(*integer);
    }
  }
  throw std::invalid_argument("option '" + name + "' is " + TypeName(found->second) +
                              ", expected " + expected);
}

}  // namespace

bool Options::Get(const std::string& name, bool fallback) const {
  return GetAs<bool>(values_, name, fallback, "a flag");
}

std::int64_t Options::Get(const std::string& name, std::int64_t fallback) const {
  return GetAs<std::int64_t>(values_, name, fallback, "an integer");
}

int Options::Get(const std::string& name, int fallback) const {
  const std::int64_t value = Get(name, static_cast<std::int64_t>(fallback));
  if (value < INT32_MIN || value > INT32_MAX) {
    throw std::invalid_argument("option '" + name + "' = " + std::to_string(value) +
                                " does not fit 32 bits");
  }
  return static_cast<int>(value);
}

double Options::Get(const std::string& name, double fallback) const {
  return GetAs<double>(values_, name, fallback, "a number");
}

std::string Options::Get(const std::string& name, const std::string& fallback) const {
  return GetAs<std::string>(values_, name, fallback, "a text");
}

std::string Options::Get(const std::string& name, const char* fallback) const {
  return Get(name, std::string(fallback));
}

bool Options::IsText(const std::string& name) const {
  const auto found = values_.find(name);
  return found != values_.end() && std::holds_alternative<std::string>(found->second);
}

void Options::RefuseUnknown(const std::set<std::string>& known) const {
  for (const auto& [name, value] : values_) {
    if (known.contains(name)) continue;
    std::string names;
    for (const std::string& option : known) names += (names.empty() ? "" : ", ") + option;
    throw std::invalid_argument("unknown option '" + name +
                                "'; the options are: " + (names.empty() ? "none" : names));
  }
}

void Environment::Inject(const std::string& name, const std::vector<double>&) {
  throw std::invalid_argument("this environment has no number '" + name + "' that can be set");
}

std::map<std::string, EnvironmentType>& Registry() {
  static std::map<std::string, EnvironmentType> registry;
  return registry;
}

}  // namespace srl
