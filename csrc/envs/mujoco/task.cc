#include "envs/mujoco/task.h"

#include <sstream>
#include <stdexcept>

namespace srl::mujoco {
namespace {

std::shared_ptr<const Model> LoadModel(const std::string& file) {
  if (file.empty()) {
    throw std::invalid_argument("option 'xml_file' is missing: the path of a MuJoCo model");
  }
  return Model::Load(file);
}

template <typename T>
T GetAtLeast(OptionReader& options, const std::string& name, T fallback, T least) {
  const T value = options.Get(name, fallback);
  if (value >= least) return value;
  std::ostringstream message;
  message << "option '" << name << "' = " << value << ", expected at least " << least;
  throw std::invalid_argument(message.str());
}

void RefuseSmaller(const char* what, int count, int least) {
  if (count >= least) return;
  throw std::invalid_argument("the model in xml_file has " + std::to_string(count) + " " + what +
                              ", expected at least " + std::to_string(least));
}

}  // namespace

Range OptionReader::GetRange(const std::string& name, const Range& fallback) {
  return {Get(name + "_min", fallback.low), Get(name + "_max", fallback.high)};
}

Task::Task(OptionReader& options, const Rules& defaults)
    : rules_(defaults),
      exclude_current_positions_(options.Get("exclude_current_positions_from_observation", true)),
      max_episode_steps_(GetAtLeast(options, "max_episode_steps", 1000, 0)) {
  rules_.frame_skip = GetAtLeast(options, "frame_skip", rules_.frame_skip, 1);
  rules_.forward_reward_weight = options.Get("forward_reward_weight", rules_.forward_reward_weight);
  rules_.ctrl_cost_weight = options.Get("ctrl_cost_weight", rules_.ctrl_cost_weight);
  rules_.reset_noise_scale =
      GetAtLeast(options, "reset_noise_scale", rules_.reset_noise_scale, 0.0);
  if (rules_.healthy_reward) {
    rules_.healthy_reward = options.Get("healthy_reward", *rules_.healthy_reward);
    terminate_when_unhealthy_ = options.Get("terminate_when_unhealthy", true);
  }
  model_ = LoadModel(options.Get("xml_file", std::string()));
  RefuseSmaller("positions", (*model_)->nq, rules_.least_positions);
  RefuseSmaller("velocities", (*model_)->nv, rules_.least_velocities);
  RefuseSmaller("actuators", (*model_)->nu, 1);
}

void Task::Start(mjData* data, Random& random) const {
  const double noise = rules_.reset_noise_scale;
  mj_resetData(model_->get(), data);
  for (int i = 0; i < model()->nq; ++i) data->qpos[i] += random.Uniform(-noise, noise);
  for (int i = 0; i < model()->nv; ++i) {
    data->qvel[i] =
        rules_.normal_velocity_noise ? noise * random.Normal() : random.Uniform(-noise, noise);
  }
  mj_forward(model_->get(), data);
}

void Task::Advance(mjData* data) const {
  for (int i = 0; i < rules_.frame_skip; ++i) mj_step(model_->get(), data);
  // Since MuJoCo 2.0 a step leaves these out where no sensor asks for them.
  if (rules_.contact_forces) mj_rnePostConstraint(model_->get(), data);
}

Reward Task::Score(const mjData& data, double previous_place) const {
  const double seconds = model()->opt.timestep * rules_.frame_skip;
  double effort = 0.0;
  for (int i = 0; i < model()->nu; ++i) effort += data.ctrl[i] * data.ctrl[i];
  return {.forward = rules_.forward_reward_weight * ((Place(data) - previous_place) / seconds),
          .survive = Healthy(data) ? rules_.healthy_reward.value_or(0.0) : 0.0,
          .ctrl = rules_.ctrl_cost_weight * effort,
          .contact = ContactCost(data)};
}

void Task::Observe(const mjData& data, std::vector<float>* observation) const {
  const int first = exclude_current_positions_ ? rules_.ground_axes : 0;
  const Range limits = {-rules_.velocity_limit, rules_.velocity_limit};
  observation->assign(data.qpos + first, data.qpos + model()->nq);
  for (int i = 0; i < model()->nv; ++i) {
    observation->push_back(static_cast<float>(limits.Clip(data.qvel[i])));
  }
  ObserveMore(data, observation);
}

}  // namespace srl::mujoco
