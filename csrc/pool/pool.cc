#include "pool/pool.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "pool/action_check.h"
#include "pool/call_guard.h"

namespace srl {
namespace {

// The number of environments, once all sizes are known to fit.
int CheckedSize(const PoolConfig& config) {
  if (config.num_envs < 1) {
    throw std::invalid_argument("num_envs = " + std::to_string(config.num_envs) +
                                ", expected at least 1");
  }
  if (config.batch_size < 1 || config.batch_size > config.num_envs) {
    throw std::invalid_argument("batch_size = " + std::to_string(config.batch_size) +
                                ", expected 1 to num_envs = " + std::to_string(config.num_envs));
  }
  if (config.threads < 0) {
    throw std::invalid_argument("threads = " + std::to_string(config.threads) +
                                ", expected 0 (one for each core) or more");
  }
  return config.num_envs;
}

EnvironmentType FindType(const std::string& id) {
  const auto found = Registry().find(id);
  if (found != Registry().end()) return found->second;
  std::string known;
  for (const auto& [name, type] : Registry()) known += (known.empty() ? "" : ", ") + name;
  throw std::invalid_argument("no native environment '" + id + "'; there are: " + known);
}

// What a saved state must have in common with the pool that takes it. Not the path of a library,
// which may lie elsewhere on another machine.
std::string Identity(const std::string& id, const Specs& specs) {
  std::string text = id.substr(id.rfind(':') + 1) + " (" + std::to_string(specs.agents.size()) +
                     " agents, bytes of action " + std::to_string(specs.action.Bytes());
  for (const Field& field : specs.observation) {
    text += ", of observation" + (field.name.empty() ? "" : " " + field.name) + " " +
            std::to_string(field.space.Bytes());
  }
  return text + ")";
}

// Calls `run(index, first, count)` for each run of neighbours first, first + 1, ... in `ids`, which
// begins at `index`.
template <typename Run>
void ForEachRun(std::span<const int> ids, const Run& run) {
  std::size_t index = 0;
  while (index < ids.size()) {
    std::size_t end = index + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    run(index, ids[index], static_cast<int>(end - index));
    index = end;
  }
}

}  // namespace

Pool::Pool(const std::string& id, const PoolConfig& config, const Options& all_options)
    : num_envs_(config.num_envs),
      batch_size_(config.batch_size),
      times_(CheckedSize(config)),
      queue_(static_cast<std::size_t>(num_envs_)),
      batches_(ProvisionNeeded() + 1, batch_size_),
      team_([this] { return WorkOnce(StepTimes::kMaxTask); }) {
  const EnvironmentType type = FindType(id);
  Options options = all_options;
  constexpr int kNone = std::numeric_limits<int>::min();
  const int limit = options.Take("max_episode_steps", kNone);
  const int action_repeat = options.Take("action_repeat", 1);
  specs_ = type.specs(options);
  if (limit != kNone && limit < 0) {
    throw std::invalid_argument("max_episode_steps = " + std::to_string(limit) +
                                ", expected at least 0, which is no limit");
  }
  if (limit != kNone) specs_.max_episode_steps = limit;
  if (action_repeat < 1) {
    throw std::invalid_argument("action_repeat = " + std::to_string(action_repeat) +
                                ", expected at least 1");
  }
  if (specs_.action.kind == Space::Kind::kBox && specs_.action.dtype != DType::kFloat32) {
    throw std::invalid_argument("a native environment's Box actions must be float32");
  }
  identity_ = Identity(id, specs_);
  stepper_.emplace(type, options, specs_, num_envs_, action_repeat, &faults_);

  const auto count = static_cast<std::size_t>(num_envs_);
  phase_.resize(count, Phase::kFresh);
  action_bytes_ = specs_.action.Bytes() * specs_.agents.size();
  actions_.resize(action_bytes_ * count);
  all_ids_.resize(count);
  std::iota(all_ids_.begin(), all_ids_.end(), 0);

  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads_ = std::min(config.threads == 0 ? cores : config.threads, num_envs_);
  // In a synchronous pool the calling thread is one of the team.
  team_.Start(synchronous() ? threads_ - 1 : threads_, config.cores);
}

// ---- checks ----

void Pool::CheckSynchronousAndIdle(const char* call) const {
  if (!synchronous()) {
    throw std::invalid_argument(std::string(call) + " gives all environments, but batch_size is " +
                                std::to_string(batch_size_) + " of " + std::to_string(num_envs_) +
                                "; call async_reset, send and recv");
  }
  CheckIdle(call);
}

void Pool::CheckIdle(const char* call) const {
  if (in_flight_ > 0) {
    throw std::invalid_argument(std::string(call) + ": " + std::to_string(in_flight_) +
                                " environments are in flight; receive them first");
  }
}

void Pool::CheckEnvId(int env_id) const {
  if (env_id >= 0 && env_id < num_envs_) return;
  throw std::invalid_argument("environment id " + std::to_string(env_id) + ", expected 0 to " +
                              std::to_string(num_envs_ - 1));
}

void Pool::CheckActions(std::span<const std::byte> actions, std::span<const int> env_ids) const {
  if (actions.size() != env_ids.size() * action_bytes_) {
    throw std::invalid_argument("actions have " + std::to_string(actions.size()) +
                                " bytes, expected " + std::to_string(action_bytes_) +
                                " for each of " + std::to_string(env_ids.size()) + " environments");
  }
  for (int id : env_ids) {
    CheckEnvId(id);
    const Phase phase = phase_[static_cast<std::size_t>(id)];
    if (phase == Phase::kReceived) continue;
    throw std::invalid_argument("environment " + std::to_string(id) +
                                (phase == Phase::kFresh ? " was never reset; call reset first"
                                                        : " is in flight; receive it first"));
  }
  CheckInSpace(specs_, actions, env_ids);
}

// The results of so many more environments need batches to go to.
void Pool::CheckRoom(int rows) const {
  if (static_cast<std::uint64_t>(rows) > batches_.room()) {
    throw std::invalid_argument("too few batches are provided for the results");
  }
}

// Throws, and marks none, where an environment is named twice.
void Pool::MarkInFlight(std::span<const int> env_ids) {
  for (std::size_t i = 0; i < env_ids.size(); ++i) {
    Phase& phase = PhaseOf(env_ids[i]);
    if (phase == Phase::kInFlight) {
      for (int id : env_ids.first(i)) PhaseOf(id) = Phase::kReceived;
      throw std::invalid_argument("environment " + std::to_string(env_ids[i]) +
                                  " is named twice in one call");
    }
    phase = Phase::kInFlight;
  }
}

// ---- synchronous use ----

void Pool::Reset(std::optional<std::uint64_t> seed, Batch* batch) { Reset(seed, all_ids_, batch); }

void Pool::Reset(std::optional<std::uint64_t> seed, std::span<const int> env_ids, Batch* batch) {
  const CallGuard guard(&in_use_);
  CheckSynchronousAndIdle("reset");
  for (int id : env_ids) CheckEnvId(id);
  MarkInFlight(env_ids);
  PrepareReset(seed, env_ids);
  if (env_ids.size() == all_ids_.size()) {
    RunAll(actions_, batch);
  } else {
    action_base_ = actions_.data();
    RunQueued(env_ids, batch);
  }
}

void Pool::Step(std::span<const std::byte> actions, Batch* batch) {
  const CallGuard guard(&in_use_);
  CheckSynchronousAndIdle("step");
  CheckActions(actions, all_ids_);
  RunAll(actions, batch);
}

// Steps everything, alone where waking others would cost more than the work.
void Pool::RunAll(std::span<const std::byte> actions, Batch* batch) {
  action_base_ = actions.data();
  if (!team_.empty() && times_.WorthWaking(num_envs_)) return RunQueued(all_ids_, batch);
  thread_local Faults faults;
  times_.Measure(0, num_envs_, [&] { RunInto(0, num_envs_, batch, faults); });
  faults_.Throw(all_ids_);
}

// Steps some environments, together with the team where that pays, and waits for the last row.
void Pool::RunQueued(std::span<const int> env_ids, Batch* batch) {
  sync_batch_.Expect(batch, static_cast<int>(env_ids.size()));
  sync_ = true;  // the queue makes this visible to the team
  Start(team_.empty() ? env_ids : times_.LongestFirst(env_ids),
        times_.WorthWaking(static_cast<int>(env_ids.size())));
  while (WorkOnce(StepTimes::kMaxTask)) {
  }
  sync_batch_.AwaitFull();
  sync_ = false;
  for (int id : env_ids) PhaseOf(id) = Phase::kReceived;
  in_flight_ = 0;
  faults_.Throw(env_ids);
}

// ---- asynchronous use ----

void Pool::SendReset(std::optional<std::uint64_t> seed) {
  const CallGuard guard(&in_use_);
  CheckRoom(num_envs_);
  // What is in flight ends first; its rows are dropped and the same batches are filled again.
  while (batches_.RowsWritten() < in_flight_) {
    if (!WorkOnce(StepTimes::kMaxTask)) std::this_thread::yield();
  }
  in_flight_ = 0;
  batches_.Rewind();
  faults_.Take(all_ids_);
  PrepareReset(seed, all_ids_);
  action_base_ = actions_.data();
  Start(all_ids_, times_.WorthWaking(batch_size_));
}

void Pool::Send(std::span<const std::byte> actions, std::span<const int> env_ids) {
  const CallGuard guard(&in_use_);
  CheckActions(actions, env_ids);
  CheckRoom(in_flight_ + static_cast<int>(env_ids.size()));
  MarkInFlight(env_ids);
  if (in_flight_ == 0) action_base_ = actions_.data();
  ForEachRun(env_ids, [&](std::size_t index, int first, int count) {
    std::memcpy(actions_.data() + static_cast<std::size_t>(first) * action_bytes_,
                actions.data() + index * action_bytes_,
                static_cast<std::size_t>(count) * action_bytes_);
  });
  Start(env_ids, times_.WorthWaking(batch_size_));
}

void Pool::Provide(Batch* batch) {
  const CallGuard guard(&in_use_);
  batches_.Provide(batch);
}

Batch* Pool::Receive() {
  const CallGuard guard(&in_use_);
  if (in_flight_ < batch_size_) {
    throw std::invalid_argument("recv needs " + std::to_string(batch_size_) +
                                " environments in flight, but only " + std::to_string(in_flight_) +
                                " are; send actions first");
  }
  PendingBatch& pending = batches_.oldest();
  // Work that is over before another thread would wake is done here, and all work where there is
  // no other thread. The thread that is behind helps: with few environments in flight this one.
  while (true) {
    const int missing = pending.missing();
    const bool help = team_.empty() || !times_.WorthWaking(batch_size_);
    if (missing == 0 || !help || !WorkOnce(missing)) break;
  }
  if (pending.missing() > 0) team_.Wake();
  pending.AwaitFull();
  Batch* const batch = pending.batch();
  const std::span<const int> ids(batch->env_id, static_cast<std::size_t>(batch_size_));
  if (const auto faults = faults_.Take(ids); !faults.empty()) {
    // The batch stays to be received, with the first rows of new episodes where there were faults.
    for (int row = 0; row < batch_size_; ++row) {
      const int id = ids[static_cast<std::size_t>(row)];
      if (faults.contains(id)) Restart(id, batch, row);
    }
    throw std::runtime_error(faults.begin()->second);
  }
  batches_.RemoveOldest();
  in_flight_ -= batch_size_;
  for (int id : ids) PhaseOf(id) = Phase::kReceived;
  return batch;
}

// ---- work ----

void Pool::PrepareReset(std::optional<std::uint64_t> seed, std::span<const int> env_ids) {
  for (int id : env_ids) {
    if (seed) stepper_->Seed(id, *seed + static_cast<std::uint64_t>(id));
    stepper_->ResetNext(id);
    PhaseOf(id) = Phase::kReceived;
  }
}

void Pool::Start(std::span<const int> env_ids, bool wake) {
  for (int id : env_ids) PhaseOf(id) = Phase::kInFlight;
  in_flight_ += static_cast<int>(env_ids.size());
  queue_.Push(env_ids);
  team_.Expect();
  if (wake) team_.Wake();
}

// Takes a task's worth of environments and steps them; false if there was nothing to do.
bool Pool::WorkOnce(int at_most) {
  std::array<int, StepTimes::kMaxTask> ids;
  const auto size = static_cast<std::size_t>(times_.TaskSize(at_most, num_envs_, threads_));
  const std::size_t count = queue_.Pop(std::span(ids).first(size));
  if (count == 0) return false;
  // Neighbours may have come apart while several threads handed them out; they step together here,
  // are given out together, and mostly come back in order.
  if (!std::is_sorted(ids.begin(), ids.begin() + count)) {
    std::sort(ids.begin(), ids.begin() + count);
  }
  ForEachRun(std::span(ids).first(count), [this](std::size_t, int first, int run) {
    times_.Measure(first, run, [&] { Run(first, run); });
  });
  return true;
}

// Moves neighbouring environments on and writes their rows: in a synchronous pool by index, else
// where the next free rows are, which are claimed once the steps are over; repeats of the actions
// come after that, as they go on from what was written.
void Pool::Run(int first, int count) {
  thread_local Faults faults;
  if (synchronous()) {
    PendingBatch& pending = sync_ ? sync_batch_ : batches_.oldest();
    RunInto(first, count, pending.batch(), faults);
    return pending.CountWritten(count);
  }
  stepper_->Step(first, count, action_base_, faults);
  batches_.Fill(count, [&](Batch* batch, int row, int rows) {
    stepper_->Write(first, rows, batch, row, faults);
    stepper_->Repeat(first, rows, action_base_, batch, row);
    for (Fault& fault : faults) fault.lane -= rows;
    first += rows;
  });
}

// Likewise, row i of the batch for environment i.
void Pool::RunInto(int first, int count, Batch* batch, Faults& faults) {
  stepper_->Step(first, count, action_base_, faults);
  stepper_->Write(first, count, batch, first, faults);
  stepper_->Repeat(first, count, action_base_, batch, first);
}

// Starts an episode of an environment that is at rest, into a row that is given out already.
void Pool::Restart(int env_id, Batch* batch, int row) {
  Faults faults;
  stepper_->ResetNext(env_id);
  stepper_->Step(env_id, 1, actions_.data(), faults);
  stepper_->Write(env_id, 1, batch, row, faults);
}

}  // namespace srl
