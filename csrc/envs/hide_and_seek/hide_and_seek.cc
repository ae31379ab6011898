#include "envs/hide_and_seek/hide_and_seek.h"

#include <algorithm>
#include <utility>

#include "envs/hide_and_seek/fields.h"

namespace srl::hide_and_seek {
namespace {

constexpr int kMoveBins = 11;
constexpr int kNoMove = kMoveBins / 2;

// The control of a bin: evenly from -0.9 to 0.9, with the rounding errors of the single precision
// in which the original game computes them, so that its recordings can be replayed.
constexpr std::array<float, kMoveBins> kBinControl = {
    -0.9f,       -0.71999997f, -0.53999996f, -0.36f,     -0.18f, 0.0f,
    0.17999995f, 0.36f,        0.53999996f,  0.7199999f, 0.9f};

// How many numbers say what to grab.
int GrabSize(const Config& config) {
  return config.grab_selective ? config.boxes_max + config.ramps : 1;
}

int ActionSize(const Config& config) { return kControls + GrabSize(config) + 1; }

}  // namespace

HideAndSeek::HideAndSeek(const Options& options)
    : config_(options), task_(MakeTask(config_)), simulation_(config_) {
  num_world_fields_ = WorldFields(config_).size();
  for (const Field& field : AllFields(config_, *task_)) {
    observation_.emplace_back(agents() * field.space.Elements());
  }
  statistics_.resize(task_->Statistics().size() + 1);
  // Some world, so that looking into the game or saving it works before the first reset too.
  Random random(0);
  Reset(random);
}

Specs HideAndSeek::MakeSpecs(const Options& options) {
  const Config config(options);
  const std::unique_ptr<Task> task = MakeTask(config);
  Specs specs;
  for (int i = 0; i < config.hiders; ++i) specs.agents.push_back("hider_" + std::to_string(i));
  for (int i = 0; i < config.seekers; ++i) specs.agents.push_back("seeker_" + std::to_string(i));
  specs.observation = AllFields(config, *task);
  std::vector<int> choices(ActionSize(config), 2);
  std::fill_n(choices.begin(), kControls, kMoveBins);
  specs.action = Space::MultiDiscrete(std::move(choices));
  specs.statistics = task->Statistics();
  specs.statistics.push_back("diverged");
  specs.max_episode_steps = config.horizon;
  return specs;
}

void HideAndSeek::Reset(Random& random) {
  const World world = DrawWorld(config_, random);
  const Simulation::Loaded loaded(&simulation_);
  Begin(world);
}

void HideAndSeek::Begin(const World& world) {
  episode_ = Episode{};
  episode_.world = world;
  episode_.held.fill(-1);
  std::fill(statistics_.begin(), statistics_.end(), 0.0f);
  simulation_.Start(world);
  Look();
  task_->Begin(view());
  Observe();
}

HideAndSeek::Wish HideAndSeek::ReadWish(const std::int32_t* chosen) const {
  Wish wish;
  const std::int32_t* grab = chosen + kControls;
  for (int i = 0; i < objects(); ++i) {
    // Where there are fewer boxes than there may be, the last ones' choices mean nothing.
    const int column = i < boxes() ? i : i - boxes() + config_.boxes_max;
    wish.grab[i] = grab[config_.grab_selective ? column : 0] == 1;
  }
  wish.lock = grab[GrabSize(config_)] == 1;
  return wish;
}

void HideAndSeek::Step(const std::byte* action, Random& random) {
  const auto* bins = reinterpret_cast<const std::int32_t*>(action);
  const int action_size = ActionSize(config_);
  std::array<double, kMaxAgents * kControls> control = {};
  Wishes wishes = {};
  Distances distances = {};
  const Simulation::Loaded loaded(&simulation_);
  for (int agent = 0; agent < agents(); ++agent) {
    const std::int32_t* chosen = bins + action_size * agent;
    const bool rests = task_->Rests(view(), agent);
    for (int i = 0; i < kControls; ++i) {
      control[kControls * agent + i] = kBinControl[rests ? kNoMove : chosen[i]];
    }
    if (!rests) wishes[agent] = ReadWish(chosen);
    for (int i = 0; i < objects(); ++i) distances[agent][i] = simulation_.Distance(agent, i);
  }
  UpdateGrips(wishes, distances);
  UpdateLocks(wishes, distances, random);
  task_->Drive(episode_, &simulation_);

  simulation_.Advance({control.data(), static_cast<std::size_t>(kControls * agents())});
  ++episode_.step;
  if (simulation_.diverged()) {
    // The state is lost: the episode ends with what was observed last.
    episode_.diverged = true;
    statistics_.back() = 1.0f;
    episode_.reward.fill(0.0f);
    return;
  }
  Look();
  task_->Judge(view(), {{episode_.reward.data(), static_cast<std::size_t>(agents())},
                        statistics_,
                        &episode_.terminated});
  Observe();
}

void HideAndSeek::Look() {
  simulation_.FillScene(&scene_);
  episode_.seen = false;
  for (int agent = 0; agent < agents(); ++agent) {
    const Cone cone(simulation_.position(agent));
    for (int thing = 0; thing < things(); ++thing) {
      if (thing == agent) continue;
      const auto to = simulation_.position(thing);
      const bool sees = cone.Holds(to[0], to[1]) && InSight(scene_, agent, thing);
      episode_.sees[agent][thing] = sees;
      if (sees && config_.team(agent) == 1 && thing < config_.hiders) episode_.seen = true;
    }
  }
}

static const Registration kRegistration(
    "HideAndSeek-v1",
    {
        .specs = &HideAndSeek::MakeSpecs,
        .make = [](const Options& options) { return std::make_unique<HideAndSeek>(options); },
    });

}  // namespace srl::hide_and_seek
