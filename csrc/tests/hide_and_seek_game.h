// One hide-and-seek environment as the tests use it: set up by hand, stepped and looked into.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <numbers>
#include <stdexcept>
#include <string>
#include <vector>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/hide_and_seek.h"
#include "tests/check.h"

namespace srl::hide_and_seek {

using Numbers = std::vector<double>;
using Settings = std::map<std::string, Options::Value>;

inline constexpr int kRest = 5;  // the bin without force
inline constexpr int kEast = 10;
inline constexpr int kWest = 0;
inline constexpr double kFacingEast = std::numbers::pi / 2;  // an agent at angle 0 faces south
inline constexpr double kFacingWest = -std::numbers::pi / 2;

struct Act {
  int x = kRest;
  int y = kRest;
  int turn = kRest;
  int grab = 0;
  int lock = 0;
};

// One environment with its own rows, as a pool would have them.
class Game {
 public:
  explicit Game(const Settings& settings, std::uint64_t seed = 1)
      : options_(settings), specs_(HideAndSeek::MakeSpecs(options_)), random_(seed) {
    num_agents_ = static_cast<int>(specs_.agents.size());
    for (const Field& field : specs_.observation) {
      fields_.emplace_back(field.space.Elements() * num_agents_);
    }
    reward_.resize(num_agents_);
    statistics_.resize(specs_.statistics.size());
    Renew();
    env_->Reset(random_);
    Write();
  }

  // Replaces the environment by a new object, which knows nothing of what was before.
  void Renew() { env_ = std::make_unique<HideAndSeek>(options_); }

  void Reset() {
    env_->Reset(random_);
    Write();
  }

  void Step(const std::vector<Act>& acts) {
    static_assert(sizeof(Act) == 5 * sizeof(int));
    CHECK(static_cast<int>(acts.size()) == num_agents_);
    env_->Step(reinterpret_cast<const std::byte*>(acts.data()), random_);
    Write();
  }

  // Of whatever size the action is.
  void StepNumbers(const std::vector<std::int32_t>& numbers) {
    CHECK(numbers.size() == num_agents_ * specs_.action.nvec.size());
    env_->Step(reinterpret_cast<const std::byte*>(numbers.data()), random_);
    Write();
  }

  // Nobody does anything.
  void Rest(int steps = 1) {
    for (int i = 0; i < steps; ++i) Step(std::vector<Act>(num_agents_));
  }

  // Random actions, each held for about `hold` steps.
  void StepRandomly(Random& choice, int hold = 1) {
    const std::vector<int>& sizes = specs_.action.nvec;
    numbers_.resize(num_agents_ * sizes.size());
    for (std::size_t i = 0; i < numbers_.size(); i += sizes.size()) {
      if (choice.Integer(1, hold) > 1) continue;
      for (std::size_t j = 0; j < sizes.size(); ++j) {
        numbers_[i + j] = choice.Integer(0, sizes[j] - 1);
      }
    }
    StepNumbers(numbers_);
  }

  void Inject(const std::string& name, const Numbers& values) {
    env_->Inject(name, values);
    Write();
  }

  // Puts one of the "agents", "boxes" or "ramps" with its centre at x and y.
  void Put(const std::string& group, int index, double x, double y, double angle = 0,
           double z = 0) {
    const Numbers centers = Get(group);
    Numbers corners = Get(group + "_qpos");
    const std::size_t columns = 4 * centers.size() / corners.size();
    for (int axis = 0; axis < 2; ++axis) {
      const double half = centers[columns * index + axis] - corners[4 * index + axis];
      corners[4 * index + axis] = (axis == 0 ? x : y) - half;
    }
    corners[4 * index + 2] = z;
    corners[4 * index + 3] = angle;
    Inject(group + "_qpos", corners);
    Inject(group + "_qvel", Numbers(corners.size(), 0.0));
  }

  // An open plane with cubes and ramps far away from each other and from the origin.
  void Clear() {
    Inject("walls", {});
    Inject("box_sizes", Numbers(9, 0.5));
    for (int i = 0; i < 3; ++i) Put("boxes", i, 9.0, 2.0 * i);
    for (int i = 0; i < 2; ++i) Put("ramps", i, 9.0, -2.0 - 2.0 * i);
    for (int i = 0; i < num_agents_; ++i) Put("agents", i, -4.0, 2.0 * i, kFacingWest);
  }

  Numbers Get(const std::string& name) const { return env_->Inspect().at(name); }
  double Get(const std::string& name, int index) const { return Get(name).at(index); }
  float Observed(const std::string& name, int agent, int element = 0) const {
    for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
      if (specs_.observation[i].name == name) {
        return Observed(static_cast<FieldIndex>(i), agent, element);
      }
    }
    throw std::invalid_argument(name);
  }
  float Observed(FieldIndex field, int agent, int element = 0) const {
    return fields_[field][fields_[field].size() / num_agents_ * agent + element];
  }
  float Statistic(const std::string& name) const {
    for (std::size_t i = 0; i < specs_.statistics.size(); ++i) {
      if (specs_.statistics[i] == name) return statistics_[i];
    }
    throw std::invalid_argument(name);
  }

  // All that a pool would see, as one row of bytes.
  std::vector<std::byte> Bytes() const {
    std::vector<std::byte> bytes;
    const auto append = [&bytes](const auto& values) {
      const auto* first = reinterpret_cast<const std::byte*>(values.data());
      bytes.insert(bytes.end(), first, first + values.size() * sizeof(values[0]));
    };
    for (const auto& field : fields_) append(field);
    append(reward_);
    append(statistics_);
    append(truncated_);
    return bytes;
  }

  HideAndSeek& env() { return *env_; }
  Random& random() { return random_; }
  const Specs& specs() const { return specs_; }
  const std::vector<float>& reward() const { return reward_; }
  bool terminated(int agent) const { return terminated_[agent]; }
  bool truncated(int agent) const { return truncated_[agent]; }
  const std::vector<std::vector<float>>& fields() const { return fields_; }
  void Write() {
    std::vector<std::byte*> observation;
    for (auto& field : fields_) observation.push_back(reinterpret_cast<std::byte*>(field.data()));
    env_->Write({observation.data(), reward_.data(), terminated_.data(), truncated_.data(),
                 statistics_.data()});
  }

 private:
  Options options_;
  Specs specs_;
  Random random_;
  int num_agents_ = 0;
  std::unique_ptr<HideAndSeek> env_;
  std::vector<std::vector<float>> fields_;
  std::vector<float> reward_;
  std::vector<float> statistics_;
  std::array<bool, kMaxAgents> terminated_ = {};
  std::array<bool, kMaxAgents> truncated_ = {};
  std::vector<std::int32_t> numbers_;
};

// One hider (agent 0) and one seeker (agent 1) with three boxes.
inline Settings Duel() {
  return {{"scenario", std::string("full")},
          {"hiders", std::int64_t{1}},
          {"seekers", std::int64_t{1}},
          {"boxes_max", std::int64_t{3}}};
}

// The same with other options.
inline Settings With(Settings settings, const Settings& others) {
  for (const auto& [name, value] : others) settings[name] = value;
  return settings;
}

inline Settings TaskSettings(const std::string& task) { return {{"task", task}}; }

inline Settings Full(bool sleep) { return {{"scenario", std::string("full")}, {"sleep", sleep}}; }
inline Settings Quadrant() { return {{"scenario", std::string("quadrant")}}; }

template <typename Function>
inline std::string MessageOf(const Function& function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace srl::hide_and_seek
