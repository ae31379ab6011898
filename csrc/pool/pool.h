// Many environments stepped together by a team of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pool/vector_environment.h"
#include "pool/work_queue.h"

namespace srl {

// Memory for one batch of R environments with A agents each: where results are written. The
// memory belongs to the caller and must outlive its use by the pool.
struct Batch {
  std::vector<std::byte*> observation;     // for each field [R * A, ...]
  float* reward = nullptr;                 // [R * A]
  bool* terminated = nullptr;              // [R * A]
  bool* truncated = nullptr;               // [R * A]
  float* episode_return = nullptr;         // [R * A]
  std::int32_t* episode_length = nullptr;  // [R]
  float* statistics = nullptr;             // [R, S]
  std::int32_t* env_id = nullptr;          // [R]
};

struct PoolConfig {
  int num_envs = 1;
  int batch_size = 1;
  int threads = 0;         // 0: one for each core
  std::vector<int> cores;  // to pin the pool's own threads to, in turn; empty: not pinned
};

// A pool of `num_envs` environments, stepped by `threads` threads.
//
// Synchronous (batch_size == num_envs): Reset and Step fill a batch whose row i is environment i;
// the calling thread works too, alone where waking others would cost more than the work.
// Asynchronous: Send hands out work, Receive gives the first `batch_size` environments that are
// ready, in the order in which they became so.
//
// Results are written once, straight into batches that the caller provides. Next-step autoreset:
// the step after an episode's end ignores the action and gives the new episode's first row.
//
// One thread at a time may call; errors are std::invalid_argument for a wrong call, which changes
// nothing, and std::runtime_error for an environment that threw, or gave what is not finite. It
// starts a new episode then: at the next Step, or in the batch that the next Receive gives, which
// loses none of the other environments' rows.
class Pool {
 public:
  // The option max_episode_steps is the pool's own: it takes the place of the environment's.
  Pool(const std::string& id, const PoolConfig& config, const Options& options);
  Pool(const std::string& id, int num_envs, int batch_size, int threads, const Options& options)
      : Pool(id, PoolConfig{num_envs, batch_size, threads, {}}, options) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const Specs& specs() const { return specs_; }
  int num_envs() const { return num_envs_; }
  int batch_size() const { return batch_size_; }
  int threads() const { return threads_; }
  int in_flight() const { return in_flight_; }
  // About how long a batch takes, from what steps took so far.
  float BatchNanoseconds() const {
    return step_nanoseconds_.load(std::memory_order_relaxed) * static_cast<float>(batch_size_);
  }

  // Synchronous pools only. With a seed, environment i restarts its stream from seed + i. Of the
  // environments named by `env_ids` alone, whose rows alone are written; of all by default.
  void Reset(std::optional<std::uint64_t> seed, Batch* batch);
  void Reset(std::optional<std::uint64_t> seed, std::span<const int> env_ids, Batch* batch);
  // `actions`: [num_envs * A] actions one after the other.
  void Step(std::span<const std::byte> actions, Batch* batch);

  // Asks every environment to restart, after what is in flight has ended and been dropped.
  void SendReset(std::optional<std::uint64_t> seed);
  // `actions`: [env_ids.size() * A]. Every id must have been received since it was last sent.
  void Send(std::span<const std::byte> actions, std::span<const int> env_ids);
  // Queues memory for a later Receive; ProvisionNeeded() batches have to be queued before the
  // first SendReset, and one after each Receive.
  void Provide(Batch* batch);
  int ProvisionNeeded() const { return (num_envs_ + batch_size_ - 1) / batch_size_; }
  // Waits for the oldest provided batch to fill and gives it.
  Batch* Receive();

  // The whole state; nothing may be in flight. Restore changes nothing if it throws
  // std::invalid_argument; a pool whose environment threw in between must be reset.
  std::vector<std::byte> Save();
  void Restore(std::span<const std::byte> state);

  // One environment, for tests and drawing; nothing may be in flight.
  std::map<std::string, std::vector<double>> Inspect(int env_id) const;
  void Inject(int env_id, const std::string& name, const std::vector<double>& values);
  std::vector<std::byte> Model(int env_id) const;

 private:
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

  enum class Phase : std::uint8_t { kFresh, kReceived, kInFlight };

  // A provided batch and how many of its rows are not written yet.
  struct Tray {
    Batch* batch = nullptr;
    std::atomic<int> missing = 0;
  };

  void CheckActions(std::span<const std::byte> actions, std::span<const int> env_ids) const;
  void RefuseUnknown(int env_id) const;
  std::string ActionName(std::ptrdiff_t place, std::span<const int> env_ids) const;
  void RefuseInFlight(const char* call) const;
  void RefuseUnlessIdle(const char* call) const;
  void RefuseWithoutMemory(int rows) const;
  void RefuseRepeats(std::span<const int> env_ids);
  void Start(std::span<const int> env_ids, bool wake);
  void Announce();
  void PrepareReset(std::optional<std::uint64_t> seed, std::span<const int> env_ids);
  bool WorthWaking(int num_envs) const;
  void RunAll(std::span<const std::byte> actions, Batch* batch);
  void RunQueued(std::span<const int> env_ids, Batch* batch);
  std::span<const int> LongestFirst(std::span<const int> env_ids);
  void StartWorkers(const std::vector<int>& cores);
  void EndWorkers();
  void WorkerLoop();
  bool WorkOnce(int at_most);
  void RunTimed(int first, int count, Batch* batch);
  void Run(int first, int count, Batch* batch);
  void Write(int first, int count, Batch* batch, int row, Faults& faults);
  void Account(int first, int count, const Rows& rows, Batch* batch, int row);
  void CheckFinite(int first, int count, const Rows& rows, Faults& faults) const;
  void SerializeOne(int env_id, Archive& archive);
  int RowsWritten() const;
  void AwaitFull(Tray& tray);
  void CountWritten(Tray& tray, int count);
  Tray& TrayOf(std::uint64_t number) const {
    return trays_[number % static_cast<std::uint64_t>(num_trays_)];
  }
  void StoreFaults(int first, const Faults& faults, std::size_t begin);
  std::string TakeFault(std::span<const int> env_ids);
  void ThrowFault(std::span<const int> env_ids);
  void Restart(int env_id, Batch* batch, int row);

  Specs specs_;
  const int num_envs_;
  const int batch_size_;
  int threads_ = 1;
  std::size_t action_bytes_ = 0;  // of all agents of one environment
  bool synchronous() const { return batch_size_ == num_envs_; }

  std::string identity_;  // which a saved state must have in common
  std::unique_ptr<VectorEnvironment> environments_;
  // Of each environment.
  std::vector<Random> random_;
  std::vector<Phase> phase_;
  std::unique_ptr<bool[]> reset_next_;
  std::vector<std::int32_t> length_;
  std::vector<float> returns_;  // of each agent
  std::unique_ptr<std::atomic<float>[]> last_nanoseconds_;
  std::vector<std::byte> actions_;
  std::vector<int> all_ids_;
  std::vector<int> order_;                  // in which a synchronous step takes them,
  std::vector<float> took_;                 // by how long each took last
  const std::byte* action_base_ = nullptr;  // of environment 0: actions_, or the caller's own
  int in_flight_ = 0;

  WorkQueue queue_;
  Tray sync_tray_;                 // of Reset and Step
  bool sync_ = false;              // whether one of them is at work
  bool unannounced_ = false;       // whether work is queued of which the team was not told
  std::unique_ptr<Tray[]> trays_;  // ring
  int num_trays_ = 0;
  std::uint64_t provided_ = 0;  // batches ever provided
  std::uint64_t received_ = 0;  // batches ever received
  std::atomic<std::uint64_t> next_row_ = 0;

  std::atomic<std::uint32_t> signal_ = 0;  // bumped to wake parked workers
  std::atomic<int> parked_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<float> step_nanoseconds_ = 1000;  // running mean over environments
  mutable std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;

  std::mutex fault_mutex_;
  std::map<int, std::string> faults_;  // of environments whose rows were not given out yet
  std::atomic<bool> any_fault_ = false;
  std::vector<char> faulty_;  // of those asked about last

  std::vector<std::thread> workers_;
};

}  // namespace srl
