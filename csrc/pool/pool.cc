#include "pool/pool.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <system_error>

namespace srl {
namespace {

// Waking a parked thread costs tens of microseconds on a virtual machine, so a task should be
// worth at least that, and a whole step below that is done by the calling thread alone.
constexpr float kTaskNanoseconds = 20'000;
constexpr float kWorthWaking = 40'000;
constexpr int kSpins = 2'000;  // a few microseconds before a thread parks
constexpr int kMaxTask = 256;

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

void Relax() { __builtin_ia32_pause(); }

// Calls `run(place, first, count)` for each run of neighbours first, first + 1, ... in `ids`, which
// begins at `place`.
template <typename Run>
void ForEachRun(std::span<const int> ids, const Run& run) {
  std::size_t place = 0;
  while (place < ids.size()) {
    std::size_t end = place + 1;
    while (end < ids.size() && ids[end] == ids[end - 1] + 1) ++end;
    run(place, ids[place], static_cast<int>(end - place));
    place = end;
  }
}

}  // namespace

Pool::Pool(const std::string& id, const PoolConfig& config, const Options& all_options)
    : num_envs_(config.num_envs),
      batch_size_(config.batch_size),
      queue_(static_cast<std::size_t>(std::max(config.num_envs, 1))) {
  if (num_envs_ < 1) {
    throw std::invalid_argument("num_envs = " + std::to_string(num_envs_) +
                                ", expected at least 1");
  }
  if (batch_size_ < 1 || batch_size_ > num_envs_) {
    throw std::invalid_argument("batch_size = " + std::to_string(batch_size_) +
                                ", expected 1 to num_envs = " + std::to_string(num_envs_));
  }
  if (config.threads < 0) {
    throw std::invalid_argument("threads = " + std::to_string(config.threads) +
                                ", expected 0 (one for each core) or more");
  }
  const EnvironmentType type = FindType(id);
  Options options = all_options;
  const int limit = options.Take("max_episode_steps", -1);
  specs_ = type.specs(options);
  if (limit >= 0) specs_.max_episode_steps = limit;
  if (specs_.action.kind == Space::Kind::kBox && specs_.action.dtype != DType::kFloat32) {
    throw std::invalid_argument("a native environment's Box actions must be float32");
  }
  identity_ = Identity(id, specs_);
  environments_ = MakeEnvironments(type, options, num_envs_);

  const auto count = static_cast<std::size_t>(num_envs_);
  for (std::size_t i = 0; i < count; ++i) random_.emplace_back(i);
  phase_.resize(count, Phase::kFresh);
  reset_next_ = std::make_unique<bool[]>(count);
  std::fill_n(reset_next_.get(), count, true);
  length_.resize(count);
  took_.resize(count);
  last_nanoseconds_ = std::make_unique<std::atomic<float>[]>(count);
  faulty_.resize(count);
  returns_.resize(count * specs_.agents.size());
  action_bytes_ = specs_.action.Bytes() * specs_.agents.size();
  actions_.resize(action_bytes_ * count);
  all_ids_.resize(count);
  std::iota(all_ids_.begin(), all_ids_.end(), 0);

  num_trays_ = ProvisionNeeded() + 1;
  trays_ = std::make_unique<Tray[]>(static_cast<std::size_t>(num_trays_));
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads_ = std::min(config.threads == 0 ? cores : config.threads, num_envs_);
  StartWorkers(config.cores);
}

void Pool::StartWorkers(const std::vector<int>& cores) {
  for (int core : cores) {
    if (core < 0 || core >= static_cast<int>(std::thread::hardware_concurrency())) {
      throw std::invalid_argument("core " + std::to_string(core) + ", expected 0 to " +
                                  std::to_string(std::thread::hardware_concurrency() - 1));
    }
  }
  // In a synchronous pool the calling thread is one of the team.
  for (int i = synchronous() ? 1 : 0; i < threads_; ++i) {
    try {
      workers_.emplace_back([this] { WorkerLoop(); });
    } catch (const std::system_error& error) {
      EndWorkers();
      throw std::runtime_error("cannot start " + std::to_string(threads_) +
                               " threads: " + error.what() + "; give threads=N");
    }
    if (cores.empty()) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[static_cast<std::size_t>(i) % cores.size()], &set);
    // A core that this process may not use leaves the thread where it is.
    pthread_setaffinity_np(workers_.back().native_handle(), sizeof(set), &set);
  }
}

Pool::~Pool() { EndWorkers(); }

void Pool::EndWorkers() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// ---- synchronous use ----

void Pool::Reset(std::optional<std::uint64_t> seed, Batch* batch) { Reset(seed, all_ids_, batch); }

void Pool::Reset(std::optional<std::uint64_t> seed, std::span<const int> env_ids, Batch* batch) {
  const Turn turn(&in_use_);
  RefuseUnlessIdle("reset");
  for (int id : env_ids) RefuseUnknown(id);
  RefuseRepeats(env_ids);
  PrepareReset(seed, env_ids);
  if (env_ids.size() == all_ids_.size()) {
    RunAll(actions_, batch);
  } else {
    action_base_ = actions_.data();
    RunQueued(env_ids, batch);
  }
}

void Pool::Step(std::span<const std::byte> actions, Batch* batch) {
  const Turn turn(&in_use_);
  RefuseUnlessIdle("step");
  CheckActions(actions, all_ids_);
  RunAll(actions, batch);
}

// Whether stepping so many environments takes longer than waking the team for it.
bool Pool::WorthWaking(int num_envs) const {
  const float each = step_nanoseconds_.load(std::memory_order_relaxed);
  return each * static_cast<float>(num_envs) > kWorthWaking;
}

// Steps everything, alone where waking others would cost more than the work.
void Pool::RunAll(std::span<const std::byte> actions, Batch* batch) {
  action_base_ = actions.data();
  if (!workers_.empty() && WorthWaking(num_envs_)) return RunQueued(all_ids_, batch);
  RunTimed(0, num_envs_, batch);
  ThrowFault(all_ids_);
}

// Steps some environments, together with the team where that pays, and waits for the last row.
void Pool::RunQueued(std::span<const int> env_ids, Batch* batch) {
  sync_tray_.batch = batch;
  sync_tray_.missing.store(static_cast<int>(env_ids.size()), std::memory_order_relaxed);
  sync_ = true;  // the queue makes this visible to the team
  Start(LongestFirst(env_ids), WorthWaking(static_cast<int>(env_ids.size())));
  while (WorkOnce(kMaxTask)) {
  }
  AwaitFull(sync_tray_);
  sync_ = false;
  for (int id : env_ids) phase_[static_cast<std::size_t>(id)] = Phase::kReceived;
  in_flight_ = 0;
  ThrowFault(env_ids);
}

// Environments whose steps are long, each a task of its own, in the order in which a team that
// waits for the last one is done soonest: the longest first, as of their last steps (Graham, 1969).
std::span<const int> Pool::LongestFirst(std::span<const int> env_ids) {
  const float each = step_nanoseconds_.load(std::memory_order_relaxed);
  if (workers_.empty() || each < kTaskNanoseconds) return env_ids;
  order_.assign(env_ids.begin(), env_ids.end());
  // What a sort compares must not change, and a worker may still be noting how long it took.
  for (int id : env_ids) took_[id] = last_nanoseconds_[id].load(std::memory_order_relaxed);
  std::sort(order_.begin(), order_.end(), [this](int a, int b) { return took_[a] > took_[b]; });
  return order_;
}

// ---- asynchronous use ----

void Pool::SendReset(std::optional<std::uint64_t> seed) {
  const Turn turn(&in_use_);
  RefuseWithoutMemory(num_envs_);
  // What is in flight ends first; its rows are dropped and the same batches are filled again.
  while (RowsWritten() < in_flight_) {
    if (!WorkOnce(kMaxTask)) std::this_thread::yield();
  }
  in_flight_ = 0;
  for (std::uint64_t i = received_; i < provided_; ++i) {
    TrayOf(i).missing.store(batch_size_, std::memory_order_relaxed);
  }
  next_row_.store(received_ * static_cast<std::uint64_t>(batch_size_), std::memory_order_relaxed);
  TakeFault(all_ids_);
  PrepareReset(seed, all_ids_);
  action_base_ = actions_.data();
  Start(all_ids_, WorthWaking(batch_size_));
}

void Pool::Send(std::span<const std::byte> actions, std::span<const int> env_ids) {
  const Turn turn(&in_use_);
  CheckActions(actions, env_ids);
  RefuseWithoutMemory(in_flight_ + static_cast<int>(env_ids.size()));
  RefuseRepeats(env_ids);
  if (in_flight_ == 0) action_base_ = actions_.data();
  ForEachRun(env_ids, [&](std::size_t place, int first, int count) {
    std::memcpy(actions_.data() + static_cast<std::size_t>(first) * action_bytes_,
                actions.data() + place * action_bytes_,
                static_cast<std::size_t>(count) * action_bytes_);
  });
  Start(env_ids, WorthWaking(batch_size_));
}

void Pool::Provide(Batch* batch) {
  const Turn turn(&in_use_);
  if (provided_ - received_ >= static_cast<std::uint64_t>(num_trays_)) {
    throw std::invalid_argument("more batches are provided than can be in use");
  }
  Tray& tray = TrayOf(provided_);
  tray.batch = batch;
  tray.missing.store(batch_size_, std::memory_order_release);
  ++provided_;
}

Batch* Pool::Receive() {
  const Turn turn(&in_use_);
  if (in_flight_ < batch_size_) {
    throw std::invalid_argument("recv needs " + std::to_string(batch_size_) +
                                " environments in flight, but only " + std::to_string(in_flight_) +
                                " are; send actions first");
  }
  Tray& tray = TrayOf(received_);
  // Work that is over before another thread would wake is done here, and all work where there is
  // no other thread. Whoever is behind helps: with few environments in flight it is the caller.
  while (true) {
    const int missing = tray.missing.load(std::memory_order_acquire);
    const bool help = workers_.empty() || !WorthWaking(batch_size_);
    if (missing == 0 || !help || !WorkOnce(missing)) break;
  }
  if (tray.missing.load(std::memory_order_acquire) > 0) Announce();
  AwaitFull(tray);
  const std::span<const int> ids(tray.batch->env_id, static_cast<std::size_t>(batch_size_));
  const std::string fault = TakeFault(ids);
  if (!fault.empty()) {
    // The batch stays to be received, with the first rows of new episodes where there were faults.
    for (int row = 0; row < batch_size_; ++row) {
      const int id = ids[static_cast<std::size_t>(row)];
      if (faulty_[static_cast<std::size_t>(id)]) Restart(id, tray.batch, row);
    }
    throw std::runtime_error(fault);
  }
  ++received_;
  in_flight_ -= batch_size_;
  for (int id : ids) phase_[static_cast<std::size_t>(id)] = Phase::kReceived;
  return tray.batch;
}

// ---- work ----

void Pool::PrepareReset(std::optional<std::uint64_t> seed, std::span<const int> env_ids) {
  for (int id : env_ids) {
    const auto i = static_cast<std::size_t>(id);
    if (seed) random_[i].Seed(*seed + i);
    reset_next_[i] = true;
    phase_[i] = Phase::kReceived;
  }
}

void Pool::Start(std::span<const int> env_ids, bool wake) {
  for (int id : env_ids) phase_[static_cast<std::size_t>(id)] = Phase::kInFlight;
  in_flight_ += static_cast<int>(env_ids.size());
  queue_.Push(env_ids);
  unannounced_ = true;
  if (wake) Announce();
}

// Wakes the team, where it does not know of all that is queued.
void Pool::Announce() {
  if (!unannounced_ || workers_.empty()) return;
  unannounced_ = false;
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) signal_.notify_all();
}

void Pool::WorkerLoop() {
  std::uint32_t seen = signal_.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_acquire)) {
    while (WorkOnce(kMaxTask)) {
    }
    std::uint32_t now = seen;
    for (int i = 0; i < kSpins && now == seen; ++i) {
      Relax();
      now = signal_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      parked_.fetch_add(1, std::memory_order_seq_cst);
      signal_.wait(seen, std::memory_order_seq_cst);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
      now = signal_.load(std::memory_order_acquire);
    }
    seen = now;
  }
}

// Takes a task's worth of environments and steps them; false if there was nothing to do.
bool Pool::WorkOnce(int at_most) {
  const float each = std::max(1.0f, step_nanoseconds_.load(std::memory_order_relaxed));
  int task = std::min(at_most, static_cast<int>(kTaskNanoseconds / each));
  if (WorthWaking(num_envs_)) {
    task = std::min(task, num_envs_ / (2 * threads_));  // leave some to the others
  }
  std::array<int, kMaxTask> ids;
  const auto size = static_cast<std::size_t>(std::clamp(task, 1, kMaxTask));
  const std::size_t count = queue_.Pop(std::span(ids).first(size));
  if (count == 0) return false;
  // Neighbours may have come apart while several threads handed them out; they step together here,
  // are given out together, and mostly come back in order.
  if (!std::is_sorted(ids.begin(), ids.begin() + count)) {
    std::sort(ids.begin(), ids.begin() + count);
  }
  ForEachRun(std::span(ids).first(count),
             [this](std::size_t, int first, int run) { RunTimed(first, run, nullptr); });
  return true;
}

// Runs neighbouring environments, and sees now and then how long they take.
void Pool::RunTimed(int first, int count, Batch* batch) {
  thread_local unsigned calls = 0;
  const float each = step_nanoseconds_.load(std::memory_order_relaxed);
  const bool tiny = each * static_cast<float>(count) < kTaskNanoseconds / 4;
  if (tiny && ++calls % 16 != 0) return Run(first, count, batch);
  const auto start = std::chrono::steady_clock::now();
  Run(first, count, batch);
  const std::chrono::duration<float, std::nano> took = std::chrono::steady_clock::now() - start;
  const float sample = took.count() / static_cast<float>(count);
  step_nanoseconds_.store(0.9f * each + 0.1f * sample, std::memory_order_relaxed);
  for (int i = first; i < first + count; ++i) {
    last_nanoseconds_[i].store(sample, std::memory_order_relaxed);
  }
}

// Moves neighbouring environments on and writes their rows: into `batch` by index where there is
// one; else where the next free rows are, which are taken once the steps are over.
void Pool::Run(int first, int count, Batch* batch) {
  thread_local Faults faults;
  faults.clear();
  const auto i = static_cast<std::size_t>(first);
  const Lanes lanes{first, count, &reset_next_[i], action_base_ + i * action_bytes_, &random_[i]};
  environments_->Step(lanes, faults);
  StoreFaults(first, faults, 0);
  if (batch) return Write(first, count, batch, first, faults);
  if (synchronous()) {
    Tray& tray = sync_ ? sync_tray_ : TrayOf(received_);
    Write(first, count, tray.batch, first, faults);
    return CountWritten(tray, count);
  }
  const auto size = static_cast<std::uint64_t>(batch_size_);
  std::uint64_t ticket =
      next_row_.fetch_add(static_cast<std::uint64_t>(count), std::memory_order_relaxed);
  while (count > 0) {  // rows may lie in more than one batch
    Tray& tray = TrayOf(ticket / size);
    const auto row = static_cast<int>(ticket % size);
    const int here = std::min(count, batch_size_ - row);
    Write(first, here, tray.batch, row, faults);
    CountWritten(tray, here);
    for (Fault& fault : faults) fault.lane -= here;
    ticket += static_cast<std::uint64_t>(here);
    first += here;
    count -= here;
  }
}

// Writes neighbours' rows. The row of an environment at fault holds its id alone, and it is reset
// next.
void Pool::Write(int first, int count, Batch* batch, int row, Faults& faults) {
  const std::size_t before = faults.size();
  const std::size_t agents = specs_.agents.size();
  const std::size_t slot = static_cast<std::size_t>(row) * agents;
  std::array<std::byte*, kMaxFields> fields;
  for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
    fields[i] = batch->observation[i] + slot * specs_.observation[i].space.Bytes();
  }
  const Rows rows{fields.data(), batch->reward + slot, batch->terminated + slot,
                  batch->truncated + slot,
                  batch->statistics + static_cast<std::size_t>(row) * specs_.statistics.size()};
  environments_->Write(first, count, rows, faults);
  std::iota(batch->env_id + row, batch->env_id + row + count, first);
  Account(first, count, rows, batch, row);
  CheckFinite(first, count, rows, faults);
  StoreFaults(first, faults, before);
  for (const Fault& fault : faults) {
    if (fault.lane >= 0 && fault.lane < count) {
      reset_next_[static_cast<std::size_t>(first + fault.lane)] = true;
    }
  }
}

// Counts steps and rewards, and ends episodes at the limit.
void Pool::Account(int first, int count, const Rows& rows, Batch* batch, int row) {
  const std::size_t agents = specs_.agents.size();
  const int limit = specs_.max_episode_steps > 0 ? specs_.max_episode_steps : INT32_MAX;
  const auto i = static_cast<std::size_t>(first);
  bool* const reset_next = &reset_next_[i];
  std::int32_t* const length = &length_[i];
  float* returns = &returns_[i * agents];
  float* out = batch->episode_return + static_cast<std::size_t>(row) * agents;
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(count); ++lane) {
    if (reset_next[lane]) {  // an episode starts, whatever the environment says of rewards
      std::fill_n(rows.reward + lane * agents, agents, 0.0f);
    }
    length[lane] = reset_next[lane] ? 0 : length[lane] + 1;
    const bool over = length[lane] >= limit;
    bool done = true;
    for (std::size_t a = lane * agents; a < (lane + 1) * agents; ++a) {
      returns[a] = reset_next[lane] ? 0.0f : returns[a] + rows.reward[a];
      out[a] = returns[a];
      rows.truncated[a] = rows.truncated[a] | over;
      done = done & (rows.terminated[a] | rows.truncated[a]);
    }
    reset_next[lane] = done;
  }
  std::copy_n(length, count, batch->episode_length + row);
}

void Pool::CountWritten(Tray& tray, int count) {
  if (tray.missing.fetch_sub(count, std::memory_order_acq_rel) == count) tray.missing.notify_all();
}

int Pool::RowsWritten() const {
  int rows = 0;
  for (std::uint64_t i = received_; i < provided_; ++i) {
    rows += batch_size_ - TrayOf(i).missing.load(std::memory_order_acquire);
  }
  return rows;
}

void Pool::AwaitFull(Tray& tray) {
  for (int i = 0; i < kSpins; ++i) {
    if (tray.missing.load(std::memory_order_acquire) == 0) return;
    Relax();
  }
  int missing = tray.missing.load(std::memory_order_acquire);
  while (missing != 0) {
    tray.missing.wait(missing, std::memory_order_acquire);
    missing = tray.missing.load(std::memory_order_acquire);
  }
}

// Starts an episode of an environment that is at rest, into a row that is given out already.
void Pool::Restart(int env_id, Batch* batch, int row) {
  const auto i = static_cast<std::size_t>(env_id);
  reset_next_[i] = true;
  Faults faults;
  environments_->Step({env_id, 1, &reset_next_[i], actions_.data(), &random_[i]}, faults);
  StoreFaults(env_id, faults, 0);
  Write(env_id, 1, batch, row, faults);
}

}  // namespace srl
