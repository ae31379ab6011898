// What a user sets of an environment, such as --goal 20.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace srl {

// An environment's options, as given by the user: name to number, flag or text.
class Options {
 public:
  using Value = std::variant<bool, std::int64_t, double, std::string>;

  Options() = default;
  explicit Options(std::map<std::string, Value> values) : values_(std::move(values)) {}

  const std::map<std::string, Value>& values() const { return values_; }

  // The option's value, or `fallback` where it was not given. Throws std::invalid_argument if the
  // given value is of another type (an integer passes for a double).
  bool Get(const std::string& name, bool fallback) const { return GetAs<bool>(name, fallback); }
  std::int64_t Get(const std::string& name, std::int64_t fallback) const {
    return GetAs<std::int64_t>(name, fallback);
  }
  int Get(const std::string& name, int fallback) const {
    const auto value = GetAs<std::int64_t>(name, fallback);
    if (value >= INT32_MIN && value <= INT32_MAX) return static_cast<int>(value);
    throw std::invalid_argument("option '" + name + "' = " + std::to_string(value) +
                                " does not fit 32 bits");
  }
  double Get(const std::string& name, double fallback) const {
    return GetAs<double>(name, fallback);
  }
  std::string Get(const std::string& name, const std::string& fallback) const {
    return GetAs<std::string>(name, fallback);
  }
  std::string Get(const std::string& name, const char* fallback) const {
    return GetAs<std::string>(name, fallback);
  }

  // Likewise, and forgets the option.
  int Take(const std::string& name, int fallback) {
    const int value = Get(name, fallback);
    values_.erase(name);
    return value;
  }

  // Whether the option was given as a text, for one that may be a number too.
  bool IsText(const std::string& name) const {
    const auto found = values_.find(name);
    return found != values_.end() && std::holds_alternative<std::string>(found->second);
  }

  // Throws std::invalid_argument naming the first option that is not among `known`.
  void RefuseUnknown(const std::set<std::string>& known) const {
    for (const auto& [name, value] : values_) {
      if (known.contains(name)) continue;
      std::string names;
      for (const std::string& option : known) names += (names.empty() ? "" : ", ") + option;
      throw std::invalid_argument("unknown option '" + name +
                                  "'; the options are: " + (names.empty() ? "none" : names));
    }
  }

 private:
  static std::string TypeName(std::size_t kind) {
    constexpr const char* kNames[] = {"a flag", "an integer", "a number", "a text"};
    return kNames[kind];
  }

  template <typename T>
  T GetAs(const std::string& name, T fallback) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return fallback;
    if (const T* value = std::get_if<T>(&found->second)) return *value;
    if constexpr (std::is_same_v<T, double>) {
      if (const auto* integer = std::get_if<std::int64_t>(&found->second)) {
        return static_cast<double>(*integer);
      }
    }
    throw std::invalid_argument("option '" + name + "' is " + TypeName(found->second.index()) +
                                ", expected " + TypeName(Value(T{}).index()));
  }

  std::map<std::string, Value> values_;
};

}  // namespace srl
