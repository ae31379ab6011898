// What agents observe, and how it and the whole state are handed over.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/hide_and_seek.h"

namespace srl::hide_and_seek {
namespace {

float* Append(std::span<const double> values, float* out) {
  return std::transform(values.begin(), values.end(), out,
                        [](double value) { return static_cast<float>(value); });
}

// Position, cosine and sine of the angle, velocities.
float* AppendObject(std::span<const double> position, std::span<const double> velocity,
                    float* out) {
  out = Append(position.first(3), out);
  *out++ = static_cast<float>(std::cos(position[3]));
  *out++ = static_cast<float>(std::sin(position[3]));
  return Append(velocity, out);
}

}  // namespace

Field NumbersField(const std::string& name, std::vector<int> shape) {
  const double infinity = std::numeric_limits<double>::infinity();
  return {name, Space::Box(DType::kFloat32, std::move(shape), {-infinity}, {infinity})};
}

Field MaskField(const std::string& name, int size) {
  return {name, Space::Box(DType::kFloat32, {size}, {0.0}, {1.0})};
}

std::vector<Field> WorldFields(const Config& config) {
  const int others = OtherRows(config);
  const int boxes = config.boxes_max;
  const int ramps = RampRows(config);
  std::vector<Field> fields = {NumbersField("observation_self", {kAgentColumns}),
                               NumbersField("agent_qpos_qvel", {others, kAgentColumns}),
                               NumbersField("box_obs", {boxes, BoxColumns(config)}),
                               NumbersField("ramp_obs", {ramps, RampColumns(config)}),
                               NumbersField("lidar", {kLidarRays, 1}),
                               MaskField("mask_aa_obs", others),
                               MaskField("mask_ab_obs", boxes),
                               MaskField("mask_ar_obs", ramps),
                               MaskField("mask_ab_obs_spoof", boxes)};
  // For who sees everything: that a row of zeros stands for nothing. They stay zero.
  if (config.agents() == 1) fields.push_back(MaskField("mask_aa_obs_spoof", others));
  if (config.ramps == 0) fields.push_back(MaskField("mask_ar_obs_spoof", ramps));
  return fields;
}

float* HideAndSeek::Row(int field, int agent) {
  std::vector<float>& values = observation_[field];
  return values.data() + values.size() / agents() * agent;
}

void HideAndSeek::Observe() {
  for (int agent = 0; agent < agents(); ++agent) {
    ObserveAgents(agent);
    ObserveObjects(agent);
    ObserveMasks(agent);
    ObserveLidar(agent);
    ObserveTask(agent);
  }
}

void HideAndSeek::ObserveLidar(int agent) {
  std::array<double, kLidarRays> lidar;
  CastLidar(scene_, agent, lidar);
  if (const double scale = config_.lidar_scale; scale > 0.0) {
    for (double& distance : lidar) distance = scale * std::tanh(distance / scale);
  }
  Append(lidar, Row(kLidar, agent));
}

void HideAndSeek::ObserveTask(int agent) {
  std::array<float*, kMaxTaskFields> rows = {};
  const std::size_t count = observation_.size() - num_world_fields_;
  for (std::size_t i = 0; i < count; ++i) {
    rows[i] = Row(static_cast<int>(num_world_fields_ + i), agent);
  }
  task_->Observe(view(), agent, {rows.data(), count});
}

void HideAndSeek::ObserveAgents(int agent) {
  // Reaches 1 one step after the preparation's end; without a game it stays 0.
  const auto progress =
      config_.is_game()
          ? static_cast<float>(std::min(1.0, episode_.step / (config_.preparation_steps() + 1e-5)))
          : 0.0f;
  const auto append = [&](int other, float* out) {
    out = Append(simulation_.position(other), out);
    out = Append(simulation_.velocity(other), out);
    *out++ = config_.team(other) == 0 && config_.marked_as_hider ? 1.0f : 0.0f;
    *out++ = progress;
    return out;
  };
  append(agent, Row(kObservationSelf, agent));
  float* out = Row(kAgentQposQvel, agent);
  for (int i = 1; i < agents(); ++i) out = append((agent - i + agents()) % agents(), out);
}

void HideAndSeek::ObserveObjects(int agent) {
  const auto append_lock = [&](const Lock& lock, float* out) {
    *out++ = lock.locked && lock.last_locker == agent;
    *out++ = lock.locked && config_.team(lock.last_locker) == config_.team(agent);
    *out++ = lock.locked;
    return out;
  };
  float* out = Row(kBoxObs, agent);
  for (int i = 0; i < boxes(); ++i) {
    out = AppendObject(simulation_.position(agents() + i), simulation_.velocity(agents() + i), out);
    if (config_.observes_sizes()) {
      for (double half : episode_.world.box_half[i]) *out++ = static_cast<float>(2 * half);
    }
    out = append_lock(episode_.locks[i], out);
  }
  std::fill(out, Row(kBoxObs, agent) + config_.boxes_max * BoxColumns(config_), 0.0f);

  out = Row(kRampObs, agent);
  for (int i = boxes(); i < objects(); ++i) {
    out = AppendObject(simulation_.position(agents() + i), simulation_.velocity(agents() + i), out);
    if (config_.observes_sizes()) out = std::fill_n(out, 3, 0.0f);
    if (config_.lock_ramps) out = append_lock(episode_.locks[i], out);
  }
}

void HideAndSeek::ObserveMasks(int agent) {
  const auto& sees = episode_.sees[agent];
  float* out = Row(kMaskAaObs, agent);
  for (int i = 1; i < agents(); ++i) *out++ = sees[(agent - i + agents()) % agents()];
  for (int i = 0; i < config_.boxes_max; ++i) {
    Row(kMaskAbObs, agent)[i] = i < boxes() && sees[agents() + i];
    Row(kMaskAbObsSpoof, agent)[i] = i < boxes();
  }
  for (int i = 0; i < config_.ramps; ++i) {
    Row(kMaskArObs, agent)[i] = sees[agents() + boxes() + i];
  }
}

void HideAndSeek::Write(const Rows& rows) const {
  for (std::size_t i = 0; i < observation_.size(); ++i) {
    std::copy(observation_[i].begin(), observation_[i].end(), rows.Observation<float>(i));
  }
  std::copy_n(episode_.reward.begin(), agents(), rows.reward);
  std::fill_n(rows.terminated, agents(), episode_.terminated);
  std::fill_n(rows.truncated, agents(), episode_.diverged);
  std::copy(statistics_.begin(), statistics_.end(), rows.statistics);
}

void HideAndSeek::Serialize(Archive& archive) {
  archive.Value(episode_);
  const World& world = episode_.world;
  if (world.num_boxes < 1 || world.num_boxes > config_.boxes_max || world.num_walls < 0 ||
      world.num_walls > config_.max_walls()) {
    throw std::runtime_error(
        "the saved hide-and-seek state does not fit: it comes from an environment with other "
        "options");
  }
  const Simulation::Loaded loaded(&simulation_);
  simulation_.Serialize(world, archive);
  simulation_.FillScene(&scene_);
  task_->Serialize(archive);
  archive.Bytes(statistics_.data(), statistics_.size() * sizeof(float));
  for (std::vector<float>& field : observation_) {
    archive.Bytes(field.data(), field.size() * sizeof(float));
  }
}

}  // namespace srl::hide_and_seek
