// Many environments stepped together by a team of threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pool/batch.h"
#include "pool/batch_ring.h"
#include "pool/fault_log.h"
#include "pool/step_times.h"
#include "pool/stepper.h"
#include "pool/team.h"
#include "pool/work_queue.h"

namespace srl {

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
  // Two options are the pool's own: max_episode_steps, in place of the environment's, and
  // action_repeat, the steps that an environment takes with each action while its episode goes on.
  Pool(const std::string& id, const PoolConfig& config, const Options& options);
  Pool(const std::string& id, int num_envs, int batch_size, int threads, const Options& options)
      : Pool(id, PoolConfig{num_envs, batch_size, threads, {}}, options) {}
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  const Specs& specs() const { return specs_; }
  int num_envs() const { return num_envs_; }
  int batch_size() const { return batch_size_; }
  int threads() const { return threads_; }
  // About how long a batch takes, from what steps took so far.
  float BatchNanoseconds() const {
    return times_.MeanNanoseconds() * static_cast<float>(batch_size_);
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
  enum class Phase : std::uint8_t { kFresh, kReceived, kInFlight };

  bool synchronous() const { return batch_size_ == num_envs_; }
  Phase& PhaseOf(int env_id) { return phase_[static_cast<std::size_t>(env_id)]; }

  void CheckSynchronousAndIdle(const char* call) const;
  void CheckIdle(const char* call) const;
  void CheckEnvId(int env_id) const;
  void CheckActions(std::span<const std::byte> actions, std::span<const int> env_ids) const;
  void CheckRoom(int rows) const;
  void MarkInFlight(std::span<const int> env_ids);

  void PrepareReset(std::optional<std::uint64_t> seed, std::span<const int> env_ids);
  void Start(std::span<const int> env_ids, bool wake);
  void RunAll(std::span<const std::byte> actions, Batch* batch);
  void RunQueued(std::span<const int> env_ids, Batch* batch);
  bool WorkOnce(int at_most);
  void Run(int first, int count);
  void RunInto(int first, int count, Batch* batch, Faults& faults);
  void Restart(int env_id, Batch* batch, int row);
  void SerializeOne(int env_id, Archive& archive);

  const int num_envs_;
  const int batch_size_;
  Specs specs_;
  std::string identity_;  // which a saved state must have in common
  int threads_ = 1;
  std::size_t action_bytes_ = 0;  // of all agents of one environment

  std::vector<int> all_ids_;
  std::vector<Phase> phase_;  // of each environment
  std::vector<std::byte> actions_;
  const std::byte* action_base_ = nullptr;  // of environment 0: actions_, or the caller's own
  int in_flight_ = 0;
  PendingBatch sync_batch_;  // of Reset and Step
  bool sync_ = false;        // whether Reset or Step is at work
  mutable std::atomic_flag in_use_ = ATOMIC_FLAG_INIT;

  StepTimes times_;
  WorkQueue queue_;
  BatchRing batches_;
  FaultLog faults_;
  std::optional<Stepper> stepper_;
  Team team_;  // the last, so that its threads end before all that they use
};

}  // namespace srl
