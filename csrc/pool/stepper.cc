#include "pool/stepper.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "pool/finite.h"

namespace srl {

Stepper::Stepper(const EnvironmentType& type, const Options& options, const Specs& specs,
                 int num_envs, int action_repeat, FaultLog* faults)
    : specs_(specs),
      agents_(specs.agents.size()),
      action_bytes_(specs.action.Bytes() * specs.agents.size()),
      action_repeat_(action_repeat),
      environments_(MakeEnvironments(type, options, num_envs)),
      faults_(faults) {
  const std::size_t count = Index(num_envs);
  for (std::size_t i = 0; i < count; ++i) random_.emplace_back(i);
  reset_next_ = std::make_unique<bool[]>(count);
  std::fill_n(reset_next_.get(), count, true);
  length_.resize(count);
  returns_.resize(count * agents_);
}

void Stepper::Step(int first, int count, const std::byte* actions, Faults& faults) {
  faults.clear();
  const std::size_t i = Index(first);
  const Lanes lanes{first, count, &reset_next_[i], actions + i * action_bytes_, &random_[i]};
  environments_->Step(lanes, faults);
  faults_->Add(first, faults, 0);
}

void Stepper::Write(int first, int count, Batch* batch, int row, Faults& faults) {
  const std::size_t before = faults.size();
  const std::size_t slot = Index(row) * agents_;
  std::array<std::byte*, kMaxFields> fields;
  for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
    fields[i] = batch->observation[i] + slot * specs_.observation[i].space.Bytes();
  }
  const Rows rows{fields.data(), batch->reward + slot, batch->terminated + slot,
                  batch->truncated + slot,
                  batch->statistics + Index(row) * specs_.statistics.size()};
  environments_->Write(first, count, rows, faults);
  std::iota(batch->env_id + row, batch->env_id + row + count, first);
  Account(first, count, rows, batch, row);
  CheckFinite(first, count, rows, faults);
  faults_->Add(first, faults, before);
  for (const Fault& fault : faults) {
    if (fault.lane >= 0 && fault.lane < count) reset_next_[Index(first + fault.lane)] = true;
  }
}

// Neighbours whose episodes go on, neither over nor just begun, step together.
void Stepper::RepeatOnce(int first, int count, const std::byte* actions, Batch* batch, int row) {
  thread_local std::vector<float> earlier;
  thread_local Faults faults;
  const auto goes_on = [&](int lane) {
    const std::size_t i = Index(first + lane);
    return !reset_next_[i] && length_[i] > 0;
  };
  for (int lane = 0; lane < count; ++lane) {
    if (!goes_on(lane)) continue;
    int end = lane + 1;
    while (end < count && goes_on(end)) ++end;
    float* const reward = batch->reward + Index(row + lane) * agents_;
    earlier.assign(reward, reward + Index(end - lane) * agents_);
    Step(first + lane, end - lane, actions, faults);
    Write(first + lane, end - lane, batch, row + lane, faults);
    for (std::size_t i = 0; i < earlier.size(); ++i) reward[i] += earlier[i];
    lane = end;
  }
}

// Counts steps and rewards, and ends episodes at the limit.
void Stepper::Account(int first, int count, const Rows& rows, Batch* batch, int row) {
  const std::size_t agents = agents_;
  const int limit = specs_.max_episode_steps > 0 ? specs_.max_episode_steps : INT32_MAX;
  const std::size_t i = Index(first);
  bool* const reset_next = &reset_next_[i];
  std::int32_t* const length = &length_[i];
  double* returns = &returns_[i * agents];
  float* out = batch->episode_return + Index(row) * agents;
  for (std::size_t lane = 0; lane < Index(count); ++lane) {
    if (reset_next[lane]) {  // an episode starts, whatever the environment says of rewards
      std::fill_n(rows.reward + lane * agents, agents, 0.0f);
    }
    length[lane] = reset_next[lane] ? 0 : length[lane] + 1;
    const bool over = length[lane] >= limit;
    bool done = true;
    for (std::size_t a = lane * agents; a < (lane + 1) * agents; ++a) {
      returns[a] = reset_next[lane] ? 0.0 : returns[a] + rows.reward[a];
      out[a] = static_cast<float>(returns[a]);
      rows.truncated[a] = rows.truncated[a] | over;
      done = done & (rows.terminated[a] | rows.truncated[a]);
    }
    reset_next[lane] = done;
  }
  std::copy_n(length, count, batch->episode_length + row);
}

// Finds environments that gave a number that is not finite, which would spoil the learner.
void Stepper::CheckFinite(int first, int count, const Rows& rows, Faults& faults) const {
  const auto check = [&](const auto* values, std::size_t width, const Field* field) {
    width *= agents_;  // numbers of one environment
    if (AllFinite(values, width * Index(count))) return;
    for (int lane = 0; lane < count; ++lane) {
      const auto is_known = [lane](const Fault& fault) { return fault.lane == lane; };
      if (AllFinite(values + width * Index(lane), width) ||
          std::any_of(faults.begin(), faults.end(), is_known)) {
        continue;
      }
      const std::string name = !field                ? "reward"
                               : field->name.empty() ? "observation"
                                                     : "observation '" + field->name + "'";
      faults.push_back({lane, "gave a number that is not finite as " + name + ", at step " +
                                  std::to_string(length_[Index(first + lane)]) +
                                  " of its episode"});
    }
  };
  check(rows.reward, 1, nullptr);
  for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
    const Field& field = specs_.observation[i];
    if (field.space.dtype == DType::kFloat32) {
      check(rows.Observation<float>(i), field.space.Elements(), &field);
    } else if (field.space.dtype == DType::kFloat64) {
      check(rows.Observation<double>(i), field.space.Elements(), &field);
    }
  }
}

void Stepper::SerializeEpisode(int env_id, Archive& archive) {
  const std::size_t i = Index(env_id);
  archive.Value(reset_next_[i]);
  archive.Value(length_[i]);
  archive.Bytes(&returns_[i * agents_], agents_ * sizeof(double));
  environments_->Serialize(env_id, archive);
}

}  // namespace srl
