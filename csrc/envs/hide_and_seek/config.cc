#include "envs/hide_and_seek/config.h"

#include <stdexcept>
#include <string>

namespace srl::hide_and_seek {
namespace {

constexpr int kMinFullBoxes = 3;  // the full game always has three elongated boxes

int GetWithin(const Options& options, const std::string& name, int fallback, int low, int high) {
  const int value = options.Get(name, fallback);
  if (value < low || value > high) {
    throw std::invalid_argument("option '" + name + "' is " + std::to_string(value) +
                                ", expected " + std::to_string(low) + " to " +
                                std::to_string(high));
  }
  return value;
}

Scenario GetScenario(const Options& options) {
  const std::string name = options.Get("scenario", "quadrant");
  if (name == "quadrant") return Scenario::kQuadrant;
  if (name == "full") return Scenario::kFull;
  throw std::invalid_argument("option 'scenario' is '" + name + "', expected 'quadrant' or 'full'");
}

}  // namespace

Config::Config(const Options& options) {
  options.RefuseUnknown({"scenario", "hiders", "seekers", "sleep", "horizon", "prep_fraction",
                         "boxes_min", "boxes_max"});
  scenario = GetScenario(options);
  hiders = GetWithin(options, "hiders", 2, 1, kMaxTeam);
  seekers = GetWithin(options, "seekers", 2, 1, kMaxTeam);
  horizon = GetWithin(options, "horizon", full() ? 240 : 80, 1, 1'000'000);
  prep_fraction = options.Get("prep_fraction", 0.4);
  if (!(prep_fraction >= 0.0 && prep_fraction <= 1.0)) {
    throw std::invalid_argument("option 'prep_fraction' is " + std::to_string(prep_fraction) +
                                ", expected 0 to 1");
  }
  sleep = options.Get("sleep", true);
  if (full()) {
    boxes_max = GetWithin(options, "boxes_max", kMaxBoxes, kMinFullBoxes, kMaxBoxes);
    boxes_min = GetWithin(options, "boxes_min", kMinFullBoxes, kMinFullBoxes, boxes_max);
  } else {
    boxes_max = GetWithin(options, "boxes_max", 2, 2, 2);
    boxes_min = GetWithin(options, "boxes_min", 2, 2, 2);
  }
}

std::array<double, 2> Config::allowed_range() const {
  if (full()) return {-6.0, 12.0};
  return {0.1, 5.9};
}

}  // namespace srl::hide_and_seek
