#include "pool/pool.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <stdexcept>

namespace srl {
namespace {

// Waking a parked thread costs tens of microseconds on a virtual machine, so a task should be
// worth at least that, and a whole step below that is done by the calling thread alone.
constexpr float kTaskNanoseconds = 20'000;
constexpr float kWorthWaking = 40'000;
constexpr int kSpins = 2'000;  // a few microseconds before a thread parks
constexpr std::size_t kMaxTask = 64;
constexpr std::size_t kMaxFields = 32;
constexpr std::uint64_t kMagic = 0x31306c6f6f506c73;  // "slPool01"

EnvironmentType FindType(const std::string& id) {
  const auto found = Registry().find(id);
  if (found != Registry().end()) return found->second;
  std::string known;
  for (const auto& [name, type] : Registry()) known += (known.empty() ? "" : ", ") + name;
  throw std::invalid_argument("no native environment '" + id + "'; there are: " + known);
}

// Marks the pool as used by the calling thread, for the length of a call.
class Turn {
 public:
  explicit Turn(std::atomic_flag* flag) : flag_(flag) {
    if (flag_->test_and_set(std::memory_order_acquire)) {
      throw std::invalid_argument("the pool is being used by another thread; one at a time may");
    }
  }
  ~Turn() { flag_->clear(std::memory_order_release); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic_flag* flag_;
};

void Relax() { __builtin_ia32_pause(); }

}  // namespace

Pool::Pool(const std::string& id, int num_envs, int batch_size, int threads, const Options& options)
    : num_envs_(num_envs),
      batch_size_(batch_size),
      queue_(static_cast<std::size_t>(std::max(num_envs, 1))) {
  if (num_envs < 1) {
    throw std::invalid_argument("num_envs = " + std::to_string(num_envs) + ", expected at least 1");
  }
  if (batch_size < 1 || batch_size > num_envs) {
    throw std::invalid_argument("batch_size = " + std::to_string(batch_size) +
                                ", expected 1 to num_envs = " + std::to_string(num_envs));
  }
  if (threads < 0) {
    throw std::invalid_argument("threads = " + std::to_string(threads) +
                                ", expected 0 (one for each core) or more");
  }
  const EnvironmentType type = FindType(id);
  specs_ = type.specs(options);
  if (specs_.observation.size() > kMaxFields) {
    throw std::invalid_argument("an observation has at most " + std::to_string(kMaxFields) +
                                " fields");
  }
  if (specs_.action.kind == Space::Kind::kBox && specs_.action.dtype != DType::kFloat32) {
    throw std::invalid_argument("a native environment's Box actions must be float32");
  }
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  threads_ = std::min(threads == 0 ? cores : threads, num_envs);
  action_bytes_ = specs_.action.Bytes() * specs_.agents.size();
  actions_.resize(action_bytes_ * static_cast<std::size_t>(num_envs));
  all_ids_.resize(static_cast<std::size_t>(num_envs));
  std::iota(all_ids_.begin(), all_ids_.end(), 0);

  slots_.resize(static_cast<std::size_t>(num_envs));
  for (int i = 0; i < num_envs; ++i) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    slot.environment = type.make(options);
    slot.random.Seed(static_cast<std::uint64_t>(i));
    slot.returns.resize(specs_.agents.size());
  }
  num_trays_ = ProvisionNeeded() + 1;
  trays_ = std::make_unique<Tray[]>(static_cast<std::size_t>(num_trays_));

  // In a synchronous pool the calling thread is one of the team.
  for (int i = synchronous() ? 1 : 0; i < threads_; ++i) {
    workers_.emplace_back([this] { WorkerLoop(); });
  }
}

Pool::~Pool() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// ---- synchronous use ----

void Pool::Reset(std::optional<std::uint64_t> seed, Batch* batch) {
  Reset(seed, all_ids_, batch);
}

void Pool::Reset(std::optional<std::uint64_t> seed, std::span<const int> env_ids, Batch* batch) {
  Turn turn(&in_use_);
  RefuseUnlessIdle("reset");
  for (int id : env_ids) RefuseUnknown(id);
  RefuseRepeats(env_ids);
  PrepareReset(seed, env_ids);
  RunInline(env_ids, batch);
}

void Pool::Step(std::span<const std::byte> actions, Batch* batch) {
  Turn turn(&in_use_);
  RefuseUnlessIdle("step");
  CheckActions(actions, all_ids_);
  std::copy(actions.begin(), actions.end(), actions_.begin());
  RunInline(all_ids_, batch);
}

// Steps everything, with the team where that pays, and waits for the last row.
void Pool::RunInline(std::span<const int> env_ids, Batch* batch) {
  inline_tray_.batch = batch;
  inline_tray_.expected = static_cast<int>(env_ids.size());
  inline_tray_.written.store(0, std::memory_order_relaxed);
  inline_ = true;  // the queue makes this visible to the team
  const float work =
      step_nanoseconds_.load(std::memory_order_relaxed) * static_cast<float>(env_ids.size());
  Start(env_ids, /*wake=*/work > kWorthWaking);
  std::array<int, kMaxTask> ids;
  while (WorkOnce(ids)) {
  }
  AwaitFull(inline_tray_);
  inline_ = false;
  for (int id : env_ids) slots_[static_cast<std::size_t>(id)].phase = Phase::kReceived;
  in_flight_ = 0;
  ThrowStoredError();
}

// ---- asynchronous use ----

void Pool::SendReset(std::optional<std::uint64_t> seed) {
  Turn turn(&in_use_);
  RefuseWithoutMemory(num_envs_);
  // What is in flight ends first; its rows are dropped and the same batches are filled again.
  std::array<int, kMaxTask> ids;
  while (RowsWritten() < in_flight_) {
    if (!workers_.empty() || !WorkOnce(ids)) std::this_thread::yield();
  }
  in_flight_ = 0;
  for (std::uint64_t i = received_; i < provided_; ++i) {
    trays_[i % static_cast<std::uint64_t>(num_trays_)].written.store(0, std::memory_order_relaxed);
  }
  next_row_.store(received_ * static_cast<std::uint64_t>(batch_size_), std::memory_order_relaxed);
  {
    std::lock_guard lock(error_mutex_);
    error_.clear();
  }
  PrepareReset(seed, all_ids_);
  Start(all_ids_, /*wake=*/true);
}

void Pool::Send(std::span<const std::byte> actions, std::span<const int> env_ids) {
  Turn turn(&in_use_);
  CheckActions(actions, env_ids);
  RefuseWithoutMemory(in_flight_ + static_cast<int>(env_ids.size()));
  RefuseRepeats(env_ids);
  for (std::size_t i = 0; i < env_ids.size(); ++i) {
    std::copy_n(actions.data() + i * action_bytes_, action_bytes_,
                actions_.data() + static_cast<std::size_t>(env_ids[i]) * action_bytes_);
  }
  Start(env_ids, /*wake=*/true);
}

void Pool::Provide(Batch* batch) {
  Turn turn(&in_use_);
  if (provided_ - received_ >= static_cast<std::uint64_t>(num_trays_)) {
    throw std::invalid_argument("more batches are provided than can be in use");
  }
  Tray& tray = trays_[provided_ % static_cast<std::uint64_t>(num_trays_)];
  tray.batch = batch;
  tray.expected = batch_size_;
  tray.written.store(0, std::memory_order_release);
  ++provided_;
}

Batch* Pool::Receive() {
  Turn turn(&in_use_);
  if (in_flight_ < batch_size_) {
    throw std::invalid_argument("recv needs " + std::to_string(batch_size_) +
                                " environments in flight, but only " + std::to_string(in_flight_) +
                                " are; send actions first");
  }
  Tray& tray = trays_[received_ % static_cast<std::uint64_t>(num_trays_)];
  // Work that is over before another thread would wake is done here, and all work where there is
  // no other thread.
  const auto help = [this] {
    const float each = step_nanoseconds_.load(std::memory_order_relaxed);
    return workers_.empty() || each * 8 < kTaskNanoseconds;
  };
  std::array<int, kMaxTask> ids;
  while (tray.written.load(std::memory_order_acquire) < batch_size_ && help() && WorkOnce(ids)) {
  }
  AwaitFull(tray);
  ++received_;
  in_flight_ -= batch_size_;
  for (int i = 0; i < batch_size_; ++i) {
    slots_[static_cast<std::size_t>(tray.batch->env_id[i])].phase = Phase::kReceived;
  }
  ThrowStoredError();
  return tray.batch;
}

// ---- work ----

void Pool::PrepareReset(std::optional<std::uint64_t> seed, std::span<const int> env_ids) {
  for (int i : env_ids) {
    Slot& slot = slots_[static_cast<std::size_t>(i)];
    if (seed) slot.random.Seed(*seed + static_cast<std::uint64_t>(i));
    slot.reset_next = true;
  }
}

void Pool::Start(std::span<const int> env_ids, bool wake) {
  for (int id : env_ids) slots_[static_cast<std::size_t>(id)].phase = Phase::kInFlight;
  in_flight_ += static_cast<int>(env_ids.size());
  queue_.Push(env_ids);
  if (!wake || workers_.empty()) return;
  signal_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) signal_.notify_all();
}

void Pool::WorkerLoop() {
  std::array<int, kMaxTask> ids;
  std::uint32_t seen = signal_.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_acquire)) {
    while (WorkOnce(ids)) {
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
bool Pool::WorkOnce(std::span<int> ids) {
  const float each = std::max(1.0f, step_nanoseconds_.load(std::memory_order_relaxed));
  const int share = std::max(1, num_envs_ / (2 * threads_));
  const auto task =
      static_cast<std::size_t>(std::clamp(static_cast<int>(kTaskNanoseconds / each), 1, share));
  const std::size_t count = queue_.Pop(ids.first(std::min(task, ids.size())));
  if (count == 0) return false;
  const auto start = std::chrono::steady_clock::now();
  for (int id : ids.first(count)) Advance(id);
  const std::chrono::duration<float, std::nano> took = std::chrono::steady_clock::now() - start;
  const float sample = took.count() / static_cast<float>(count);
  step_nanoseconds_.store(0.9f * each + 0.1f * sample, std::memory_order_relaxed);
  return true;
}

// Moves one environment on and writes its row. Errors are kept for the caller: the row counts as
// written, so that nobody waits for it.
void Pool::Advance(int env_id) {
  Slot& slot = slots_[static_cast<std::size_t>(env_id)];
  const bool stepped = !slot.reset_next;
  try {
    if (stepped) {
      slot.environment->Step(actions_.data() + static_cast<std::size_t>(env_id) * action_bytes_,
                             slot.random);
    } else {
      slot.environment->Reset(slot.random);
    }
    Finish(env_id, stepped, nullptr);
  } catch (const std::exception& error) {
    Finish(env_id, stepped, error.what());
  }
}

// Writes the row and counts it. After an error the row holds the environment's id alone, and the
// environment is reset next.
void Pool::Finish(int env_id, bool stepped, const char* error) {
  // A synchronous batch takes rows by id, an asynchronous one in the order of completion.
  const auto size = static_cast<std::uint64_t>(batch_size_);
  const std::uint64_t ticket = synchronous() ? received_ * size + static_cast<std::uint64_t>(env_id)
                                             : next_row_.fetch_add(1, std::memory_order_relaxed);
  Tray& tray =
      inline_ ? inline_tray_ : trays_[(ticket / size) % static_cast<std::uint64_t>(num_trays_)];
  const auto row = static_cast<int>(ticket % size);
  tray.batch->env_id[row] = env_id;
  std::string message = error ? error : "";
  if (!error) {
    try {
      WriteRow(env_id, tray.batch, row, stepped);
    } catch (const std::exception& raised) {
      message = raised.what();
    }
  }
  if (!message.empty()) {
    slots_[static_cast<std::size_t>(env_id)].reset_next = true;
    StoreError(env_id, message);
  }
  if (tray.written.fetch_add(1, std::memory_order_acq_rel) + 1 == tray.expected) {
    tray.written.notify_all();
  }
}

void Pool::WriteRow(int env_id, Batch* batch, int row, bool stepped) {
  Slot& slot = slots_[static_cast<std::size_t>(env_id)];
  const std::size_t agents = specs_.agents.size();
  const std::size_t first = static_cast<std::size_t>(row) * agents;
  std::array<std::byte*, kMaxFields> fields;
  for (std::size_t i = 0; i < specs_.observation.size(); ++i) {
    fields[i] = batch->observation[i] + first * specs_.observation[i].space.Bytes();
  }
  const Rows rows{fields.data(), batch->reward + first, batch->terminated + first,
                  batch->truncated + first,
                  batch->statistics + static_cast<std::size_t>(row) * specs_.statistics.size()};
  slot.environment->Write(rows);

  slot.length = stepped ? slot.length + 1 : 0;
  const bool limit = specs_.max_episode_steps > 0 && slot.length >= specs_.max_episode_steps;
  bool done = true;
  for (std::size_t agent = 0; agent < agents; ++agent) {
    slot.returns[agent] = stepped ? slot.returns[agent] + rows.reward[agent] : 0.0f;
    batch->episode_return[first + agent] = slot.returns[agent];
    rows.truncated[agent] |= limit;
    done &= rows.terminated[agent] || rows.truncated[agent];
  }
  slot.reset_next = done;
  batch->episode_length[row] = slot.length;
  CheckFinite(rows, slot.length);
}

int Pool::RowsWritten() const {
  int rows = 0;
  for (std::uint64_t i = received_; i < provided_; ++i) {
    rows +=
        trays_[i % static_cast<std::uint64_t>(num_trays_)].written.load(std::memory_order_acquire);
  }
  return rows;
}

void Pool::AwaitFull(Tray& tray) {
  for (int i = 0; i < kSpins; ++i) {
    if (tray.written.load(std::memory_order_acquire) == tray.expected) return;
    Relax();
  }
  int written = tray.written.load(std::memory_order_acquire);
  while (written != tray.expected) {
    tray.written.wait(written, std::memory_order_acquire);
    written = tray.written.load(std::memory_order_acquire);
  }
}

void Pool::StoreError(int env_id, const std::string& message) {
  std::lock_guard lock(error_mutex_);
  if (error_.empty()) error_ = "environment " + std::to_string(env_id) + ": " + message;
}

void Pool::ThrowStoredError() {
  std::string message;
  {
    std::lock_guard lock(error_mutex_);
    if (error_.empty()) return;
    message.swap(error_);
  }
  throw std::runtime_error(message);
}

// ---- state ----

void Pool::Slot::Serialize(Archive& archive) {
  archive.Value(random);
  archive.Value(phase);
  archive.Value(reset_next);
  archive.Value(length);
  archive.Bytes(returns.data(), returns.size() * sizeof(float));
  environment->Serialize(archive);
}

std::vector<std::byte> Pool::Save() {
  Turn turn(&in_use_);
  RefuseInFlight("save");
  std::vector<std::byte> state;
  Archive archive(&state);
  std::uint64_t magic = kMagic;
  int num_envs = num_envs_;
  archive.Value(magic);
  archive.Value(num_envs);
  for (Slot& slot : slots_) {
    // Each environment's bytes go with their length, so that a restore can check before it acts.
    std::vector<std::byte> own;
    Archive environment(&own);
    slot.Serialize(environment);
    archive.Vector(own);
  }
  return state;
}

void Pool::Restore(std::span<const std::byte> state) {
  Turn turn(&in_use_);
  RefuseInFlight("restore");
  Archive archive(state);
  std::uint64_t magic = 0;
  int num_envs = 0;
  std::vector<std::vector<std::byte>> parts(slots_.size());
  try {
    archive.Value(magic);
    archive.Value(num_envs);
    if (magic != kMagic) throw std::invalid_argument("these bytes are no saved pool");
    if (num_envs != num_envs_) {
      throw std::invalid_argument("the saved pool has " + std::to_string(num_envs) +
                                  " environments, this one " + std::to_string(num_envs_));
    }
    for (auto& part : parts) archive.Vector(part);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(error.what());
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    Archive environment{std::span<const std::byte>(parts[i])};
    slot.Serialize(environment);
    if (environment.remaining() > 0) {
      throw std::runtime_error("environment " + std::to_string(i) +
                               ": the saved state is too long");
    }
  }
}

Environment& Pool::At(int env_id) {
  RefuseUnknown(env_id);
  RefuseInFlight("access to an environment");
  return *slots_[static_cast<std::size_t>(env_id)].environment;
}

}  // namespace srl
