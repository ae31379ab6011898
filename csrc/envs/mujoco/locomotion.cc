#include "envs/mujoco/locomotion.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace srl::mujoco {
namespace {

std::vector<double> Bounds(const mjModel& model, int side, double unlimited) {
  std::vector<double> bounds;
  for (int i = 0; i < model.nu; ++i) {
    const bool limited = model.actuator_ctrllimited[i];
    bounds.push_back(limited ? model.actuator_ctrlrange[2 * i + side] : unlimited);
  }
  return bounds;
}

}  // namespace

Locomotion::Locomotion(std::unique_ptr<const Task> task) : task_(std::move(task)) {
  mjData* data = task_->model().ThreadData();
  mj_resetData(task_->model().get(), data);
  Begin(*data);
}

// Calls `act` with each statistic's name and value; the rewards are sums over the episode.
template <typename Act>
void Locomotion::ForEachStatistic(Act&& act) const {
  act("x_position", x_position_);
  act("reward_forward", sums_.forward);
  act("reward_ctrl", -sums_.ctrl);
  if (task_->has_health()) act("reward_survive", sums_.survive);
  if (task_->has_contact_forces()) act("reward_contact", -sums_.contact);
  act("diverged", outcome_.diverged);
}

Specs Locomotion::MakeSpecs() const {
  const mjModel& model = *task_->model().get();
  std::vector<std::string> statistics;
  ForEachStatistic([&](const char* name, double) { statistics.push_back(name); });
  const int size = static_cast<int>(observation_.size());
  return {.agents = {"agent"},
          .observation = {{"", Space::Box(DType::kFloat32, {size}, {-INFINITY}, {INFINITY})}},
          .action = Space::Box(DType::kFloat32, {static_cast<int>(model.nu)},
                               Bounds(model, 0, -INFINITY), Bounds(model, 1, INFINITY)),
          .statistics = statistics,
          .max_episode_steps = task_->max_episode_steps()};
}

void Locomotion::Reset(Random& random) {
  mjData* data = task_->model().ThreadData();
  task_->Start(data, random);
  Begin(*data);
}

// Takes over a state in which nothing has happened yet.
void Locomotion::Begin(const mjData& data) {
  Keep(data);
  outcome_ = {};
  sums_ = {};
}

void Locomotion::Keep(const mjData& data) {
  const mjModel* model = task_->model().get();
  state_.resize(static_cast<std::size_t>(mj_stateSize(model, mjSTATE_INTEGRATION)));
  mj_getState(model, &data, state_.data(), mjSTATE_INTEGRATION);
  place_ = task_->Place(data);
  x_position_ = data.qpos[0];
  task_->Observe(data, &observation_);
}

void Locomotion::Step(const std::byte* action, Random&) {
  const mjModel* model = task_->model().get();
  mjData* data = task_->model().ThreadData();
  mj_setState(model, data, state_.data(), mjSTATE_INTEGRATION);
  std::fill_n(data->warning, mjNWARNING, mjWarningStat{});
  std::copy_n(reinterpret_cast<const float*>(action), model->nu, data->ctrl);
  task_->Advance(data);
  outcome_ = {.diverged = Failed(*data)};
  if (outcome_.diverged) return;
  const Reward reward = task_->Score(*data, place_);
  outcome_.reward = static_cast<float>(reward.Total());
  outcome_.terminated = task_->Terminated(*data);
  sums_.forward += reward.forward;
  sums_.survive += reward.survive;
  sums_.ctrl += reward.ctrl;
  sums_.contact += reward.contact;
  Keep(*data);
}

void Locomotion::Write(const Rows& rows) const {
  std::copy(observation_.begin(), observation_.end(), rows.Observation<float>());
  *rows.reward = outcome_.reward;
  *rows.terminated = outcome_.terminated;
  *rows.truncated = outcome_.diverged;
  float* statistic = rows.statistics;
  ForEachStatistic([&](const char*, double value) { *statistic++ = static_cast<float>(value); });
}

void Locomotion::Serialize(Archive& archive) {
  const std::size_t size = state_.size(), observed = observation_.size();
  archive.Vector(state_);
  archive.Vector(observation_);
  if (state_.size() != size || observation_.size() != observed) {
    throw std::runtime_error("the saved state has " + std::to_string(state_.size()) +
                             " numbers and its observation " + std::to_string(observation_.size()) +
                             ", expected " + std::to_string(size) + " and " +
                             std::to_string(observed) + ": it comes from another model");
  }
  archive.Value(place_);
  archive.Value(x_position_);
  archive.Value(outcome_.reward);
  archive.Value(outcome_.terminated);
  archive.Value(outcome_.diverged);
  archive.Value(sums_);
}

std::map<std::string, std::vector<double>> Locomotion::Inspect() const {
  const mjModel* model = task_->model().get();
  const auto part = [&](int signature) {
    std::vector<double> values(static_cast<std::size_t>(mj_stateSize(model, signature)));
    mj_extractState(model, state_.data(), mjSTATE_INTEGRATION, values.data(), signature);
    return values;
  };
  return {{"qpos", part(mjSTATE_QPOS)}, {"qvel", part(mjSTATE_QVEL)}};
}

void Locomotion::Inject(const std::string& name, const std::vector<double>& values) {
  const mjModel* model = task_->model().get();
  std::map<std::string, std::vector<double>> numbers = Inspect();
  const auto chosen = numbers.find(name);
  if (chosen == numbers.end() || chosen->second.size() != values.size()) {
    throw std::invalid_argument("'" + name + "' of " + std::to_string(values.size()) +
                                " numbers cannot be set; there are 'qpos' of " +
                                std::to_string(model->nq) + " and 'qvel' of " +
                                std::to_string(model->nv));
  }
  chosen->second = values;
  mjData* data = task_->model().ThreadData();
  mj_resetData(model, data);
  std::copy_n(numbers["qpos"].data(), model->nq, data->qpos);
  std::copy_n(numbers["qvel"].data(), model->nv, data->qvel);
  mj_forward(model, data);
  Keep(*data);
}

std::map<std::string, TaskMaker>& Tasks() {
  static std::map<std::string, TaskMaker> tasks;
  return tasks;
}

LocomotionRegistration::LocomotionRegistration(const std::string& id, TaskMaker make) {
  Tasks()[id] = make;
  const Registration registration(
      id, {
              .specs = [make](const Options& o) { return Locomotion(make(o)).MakeSpecs(); },
              .make = [make](const Options& o) { return std::make_unique<Locomotion>(make(o)); },
          });
}

}  // namespace srl::mujoco
