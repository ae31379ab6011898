#include "envs/hide_and_seek/config.h"

#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace srl::hide_and_seek {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Names that an option may have, with what each stands for.
template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

// Reads options one by one, and refuses those that mean nothing where they are given.
class Reader {
 public:
  explicit Reader(const Options& options) : options_(options) {}

  void Read(const std::string& name, bool* value) { *value = options_.Get(name, *value); }

  void Read(const std::string& name, int low, int high, int* value) {
    *value = options_.Get(name, *value);
    if (*value >= low && *value <= high) return;
    Refuse(name, std::to_string(*value), std::to_string(low) + " to " + std::to_string(high));
  }

  void Read(const std::string& name, double low, double high, double* value) {
    *value = options_.Get(name, *value);
    if (*value >= low && *value <= high) return;
    Refuse(name, std::to_string(*value),
           high == kInfinity ? "at least " + Short(low) : Short(low) + " to " + Short(high));
  }

  template <typename T>
  void Read(const std::string& name, const Choices<T>& choices, T* value) {
    if (!Given(name)) return;
    const std::string text = options_.Get(name, "");
    std::string names;
    for (const auto& [choice, meaning] : choices) {
      if (text == choice) {
        *value = meaning;
        return;
      }
      names += (names.empty() ? "'" : " or '") + choice + "'";
    }
    Refuse(name, "'" + text + "'", names);
  }

  bool Given(const std::string& name) const { return options_.values().contains(name); }

  // Throws for the first of `names` that was given: it does nothing `where`.
  void RefuseGiven(const std::vector<std::string>& names, const std::string& where) const {
    for (const std::string& name : names) {
      if (!Given(name)) continue;
      throw std::invalid_argument("option '" + name + "' means nothing " + where +
                                  "; leave it out");
    }
  }

 private:
  // A number as people write it.
  static std::string Short(double number) {
    std::string text = std::to_string(number);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  }

  [[noreturn]] static void Refuse(const std::string& name, const std::string& given,
                                  const std::string& expected) {
    throw std::invalid_argument("option '" + name + "' is " + given + ", expected " + expected);
  }

  const Options& options_;
};

constexpr double kMinFloorSize = 4.0;
constexpr double kMaxFloorSize = 12.0;

const std::vector<std::string> kQuadrantOptions = {"door_dropout", "hiders_anywhere"};
const std::vector<std::string> kFullOptions = {"rooms_min",  "rooms_max",       "outer_walls",
                                               "floor_size", "hiders_together", "seekers_together"};
const std::vector<std::string> kFoodOptions = {
    "food_health",   "food_radius",      "food_respawn_steps", "food_together",    "food_clusters",
    "food_centered", "food_when_caught", "food_reward",        "food_reward_scale"};
const std::vector<std::string> kWorldOptions = {"boxes_min",     "boxes_max", "elongated_min",
                                                "elongated_max", "ramps",     "lock_ramps"};
const std::vector<std::string> kGameOptions = {
    "scenario", "hiders", "seekers", "prep_fraction", "reward_type", "penalize_objects_out",
    "food"};
const std::vector<std::string> kCommonOptions = {
    "task",           "horizon",        "sleep",       "lock_type",         "lock_out_of_vision",
    "grab_selective", "grab_exclusive", "lidar_scale", "grab_out_of_vision"};

void RefuseUnknown(const Options& options) {
  std::set<std::string> known;
  for (const auto& names : {kQuadrantOptions, kFullOptions, kFoodOptions, kWorldOptions,
                            kGameOptions, kCommonOptions}) {
    known.insert(names.begin(), names.end());
  }
  options.RefuseUnknown(known);
}

Choices<TaskKind> TaskChoices() {
  Choices<TaskKind> choices;
  for (std::size_t i = 0; i < kTaskNames.size(); ++i) {
    choices.emplace_back(kTaskNames[i], static_cast<TaskKind>(i));
  }
  return choices;
}

const Choices<RewardType>& RewardChoices() {
  static const Choices<RewardType> choices = {{"selfish", RewardType::kSelfish},
                                              {"joint_mean", RewardType::kJointMean},
                                              {"joint_zero_sum", RewardType::kJointZeroSum}};
  return choices;
}

// What the full game has by default where it differs from the quadrant.
void TakeFullDefaults(Config* config) {
  config->horizon = 240;
  config->boxes_min = 3;
  config->boxes_max = kMaxBoxes;
  config->elongated_min = 3;
  config->elongated_max = kMaxBoxes;
  config->ramps = 2;
  config->lock_ramps = true;
  config->wall_friction = 1.0;
  config->penalize_objects_out = false;
}

void ReadWorld(Reader& reader, Config* config) {
  reader.Read("boxes_max", 1, kMaxBoxes, &config->boxes_max);
  // The defaults of the others give way to a small number of boxes.
  config->boxes_min = std::min(config->boxes_min, config->boxes_max);
  reader.Read("boxes_min", 1, config->boxes_max, &config->boxes_min);
  config->elongated_max = std::min(config->elongated_max, config->boxes_max);
  reader.Read("elongated_max", 0, config->boxes_max, &config->elongated_max);
  config->elongated_min =
      std::min({config->elongated_min, config->elongated_max, config->boxes_min});
  reader.Read("elongated_min", 0, std::min(config->elongated_max, config->boxes_min),
              &config->elongated_min);
  reader.Read("ramps", 0, 2, &config->ramps);
  if (config->ramps == 0) reader.RefuseGiven({"lock_ramps"}, "without ramps");
  reader.Read("lock_ramps", &config->lock_ramps);
}

void ReadFood(Reader& reader, Config* config) {
  FoodConfig& food = config->food;
  reader.Read("food", 0, kMaxFood, &food.count);
  if (food.count == 0) reader.RefuseGiven(kFoodOptions, "without food (option 'food')");
  if (config->scenario == Scenario::kQuadrant) {
    reader.RefuseGiven({"food_centered"}, "in scenario 'quadrant', whose food is in the room");
  }
  reader.Read("food_health", 1, 1'000'000, &food.health);
  reader.Read("food_radius", 0.0, kInfinity, &food.radius);
  reader.Read("food_respawn_steps", 0, 1'000'000, &food.respawn_steps);
  reader.Read("food_together", 0.0, kFloorSize, &food.together);
  reader.Read("food_clusters", 1, kMaxFood, &food.clusters);
  reader.Read("food_centered", &food.centered);
  reader.Read("food_when_caught", &food.when_caught);
  reader.Read("food_reward", {RewardChoices()[0], RewardChoices()[1]}, &food.reward);
  reader.Read("food_reward_scale", -kInfinity, kInfinity, &food.reward_scale);
  if (food.count % food.clusters != 0) {
    throw std::invalid_argument("option 'food_clusters' is " + std::to_string(food.clusters) +
                                ", expected a divisor of the number of food, which is " +
                                std::to_string(food.count));
  }
}

void ReadGame(Reader& reader, Config* config) {
  reader.Read<Scenario>("scenario", {{"quadrant", Scenario::kQuadrant}, {"full", Scenario::kFull}},
                        &config->scenario);
  if (config->scenario == Scenario::kFull) {
    TakeFullDefaults(config);
    reader.RefuseGiven(kQuadrantOptions, "in scenario 'full'");
  } else {
    reader.RefuseGiven(kFullOptions, "in scenario 'quadrant'");
  }
  reader.Read("hiders", 1, kMaxTeam, &config->hiders);
  reader.Read("seekers", 1, kMaxTeam, &config->seekers);
  reader.Read("prep_fraction", 0.0, 1.0, &config->prep_fraction);
  ReadWorld(reader, config);
  reader.Read("rooms_max", 1, kMaxRooms, &config->rooms_max);
  reader.Read("rooms_min", 1, config->rooms_max, &config->rooms_min);
  reader.Read("outer_walls", 0.0, 1.0, &config->outer_walls);
  reader.Read("floor_size", kMinFloorSize, kMaxFloorSize, &config->floor_size);
  if (std::abs(config->floor_size - 0.2 * config->grid_size()) > 1e-9) {
    std::ostringstream given;
    given << config->floor_size;
    throw std::invalid_argument("option 'floor_size' is " + given.str() +
                                ", expected a multiple of 0.2");
  }
  reader.Read("hiders_together", 0.0, kMaxFloorSize, &config->hiders_together);
  reader.Read("seekers_together", 0.0, kMaxFloorSize, &config->seekers_together);
  reader.Read("door_dropout", 0.0, 1.0, &config->door_dropout);
  reader.Read("hiders_anywhere", &config->hiders_anywhere);
  reader.Read("reward_type", RewardChoices(), &config->reward_type);
  reader.Read("penalize_objects_out", &config->penalize_objects_out);
  ReadFood(reader, config);
}

// The fixed worlds of the transfer tasks, each with one agent.
void TakeTaskDefaults(Config* config) {
  config->hiders = 1;
  config->seekers = 0;
  config->prep_fraction = 0.0;
  config->ramps = 0;
  config->lock_ramps = true;
  config->outer_walls = 1.0;
  config->penalize_objects_out = false;
  const auto set_boxes = [config](int boxes, int elongated) {
    config->boxes_min = config->boxes_max = boxes;
    config->elongated_min = config->elongated_max = elongated;
  };
  switch (config->task) {
    case TaskKind::kHideAndSeek:
      break;
    case TaskKind::kLockAndReturn:
      config->horizon = 120;
      config->rooms_min = config->rooms_max = 6;
      config->wall_friction = 1.0;
      set_boxes(1, 0);
      break;
    case TaskKind::kSequentialLock:
      config->horizon = 120;
      config->ramps = 3;
      config->wall_friction = 1.0;
      set_boxes(4, 0);
      break;
    case TaskKind::kBlueprint:
      config->horizon = 150;
      config->marked_as_hider = false;
      set_boxes(8, 0);
      break;
    case TaskKind::kShelter:
      config->horizon = 240;
      config->marked_as_hider = false;
      set_boxes(8, 3);
      break;
    case TaskKind::kObjectCounting:
      config->horizon = 80;
      set_boxes(6, 0);
      break;
  }
}

}  // namespace

Config::Config(const Options& options) {
  RefuseUnknown(options);
  Reader reader(options);
  reader.Read("task", TaskChoices(), &task);
  if (is_game()) {
    ReadGame(reader, this);
  } else {
    const std::string where =
        std::string("in task '") + kTaskNames[static_cast<std::size_t>(task)] + "'";
    for (const auto& names :
         {kGameOptions, kWorldOptions, kQuadrantOptions, kFullOptions, kFoodOptions}) {
      reader.RefuseGiven(names, where);
    }
    TakeTaskDefaults(this);
  }
  reader.Read("horizon", 1, 1'000'000, &horizon);
  reader.Read<LockType>("lock_type",
                        {{"any_lock", LockType::kAnyLock},
                         {"all_lock", LockType::kAllLock},
                         {"any_lock_specific", LockType::kAnyLockSpecific},
                         {"all_lock_team_specific", LockType::kAllLockTeamSpecific}},
                        &lock_type);
  reader.Read("lock_out_of_vision", &lock_out_of_vision);
  reader.Read("grab_out_of_vision", &grab_out_of_vision);
  reader.Read("grab_selective", &grab_selective);
  reader.Read("grab_exclusive", &grab_exclusive);
  reader.Read("lidar_scale", 0.0, kInfinity, &lidar_scale);
  reader.Read("sleep", &sleep);
}

std::array<double, 2> Config::allowed_range() const {
  if (scenario == Scenario::kFull) return {-floor_size, 2 * floor_size};
  return {0.1, 5.9};
}

}  // namespace srl::hide_and_seek
