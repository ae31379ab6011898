#include "xla/pool_calls.h"

#include <atomic>
#include <cfenv>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "xla/calls.h"
#include "xla/ffi/api/ffi.h"

namespace srl {
namespace {

namespace ffi = xla::ffi;
using Number = ffi::BufferR0<ffi::U32>;
using NextNumber = ffi::ResultBufferR0<ffi::U32>;
using Seed = ffi::BufferR1<ffi::U32>;
using EnvIds = ffi::BufferR1<ffi::S32>;

constexpr char kClosed[] = "the pool is closed";

ffi::DataType ToXla(DType dtype) {
  static constexpr ffi::DataType kTypes[] = {ffi::PRED, ffi::U8,  ffi::S32,
                                             ffi::S64,  ffi::F32, ffi::F64};
  return kTypes[static_cast<int>(dtype)];
}

// One array of a batch.
struct Part {
  void* data;
  DType dtype;
  std::size_t count;

  std::size_t bytes() const { return count * ByteSize(dtype); }
};

// The arrays of `batch`, in their order among a call's results.
std::vector<Part> PartsOf(const Pool& pool, const Batch& batch) {
  const Specs& specs = pool.specs();
  const auto rows = static_cast<std::size_t>(pool.batch_size());
  const std::size_t slots = rows * specs.agents.size();
  std::vector<Part> parts;
  for (std::size_t i = 0; i < specs.observation.size(); ++i) {
    const Space& space = specs.observation[i].space;
    parts.push_back({batch.observation[i], space.dtype, slots * space.Elements()});
  }
  parts.push_back({batch.reward, DType::kFloat32, slots});
  parts.push_back({batch.terminated, DType::kBool, slots});
  parts.push_back({batch.truncated, DType::kBool, slots});
  parts.push_back({batch.episode_return, DType::kFloat32, slots});
  parts.push_back({batch.episode_length, DType::kInt32, rows});
  parts.push_back({batch.statistics, DType::kFloat32, rows * specs.statistics.size()});
  parts.push_back({batch.env_id, DType::kInt32, rows});
  return parts;
}

// A batch over consecutive pieces of memory that `next` gives.
template <typename Next>
Batch BatchOver(const Pool& pool, Next next) {
  Batch batch;
  batch.observation.resize(pool.specs().observation.size());
  std::vector<void*> pieces;
  for (const Part& part : PartsOf(pool, batch)) pieces.push_back(next(part));
  auto piece = pieces.begin();
  for (std::byte*& field : batch.observation) field = static_cast<std::byte*>(*piece++);
  batch.reward = static_cast<float*>(*piece++);
  batch.terminated = static_cast<bool*>(*piece++);
  batch.truncated = static_cast<bool*>(*piece++);
  batch.episode_return = static_cast<float*>(*piece++);
  batch.episode_length = static_cast<std::int32_t*>(*piece++);
  batch.statistics = static_cast<float*>(*piece++);
  batch.env_id = static_cast<std::int32_t*>(*piece++);
  return batch;
}

void DemandSameKind(bool same) {
  if (same) return;
  throw std::invalid_argument(
      "this program was traced for a pool of another size or environment than it is given");
}

// The memory of a call's results, which are checked: a program may be given any pool's handle.
Batch ResultsOf(const Pool& pool, const ffi::RemainingRets& results) {
  std::size_t index = 0;
  Batch batch = BatchOver(pool, [&](const Part& part) {
    auto buffer = results.get<ffi::AnyBuffer>(index++);
    DemandSameKind(buffer.has_value() && (*buffer)->element_type() == ToXla(part.dtype) &&
                   (*buffer)->element_count() == part.count);
    return (*buffer)->untyped_data();
  });
  DemandSameKind(index == results.size());
  return batch;
}

std::span<const std::byte> ActionsOf(const Pool& pool, const ffi::AnyBuffer& actions) {
  DemandSameKind(actions.element_type() == ToXla(pool.specs().action.dtype));
  return {static_cast<const std::byte*>(actions.untyped_data()), actions.size_bytes()};
}

std::optional<std::uint64_t> SeedOf(const Seed& seed) {
  DemandSameKind(seed.element_count() == 2);
  if (seed.typed_data()[0] == 0) return std::nullopt;
  return seed.typed_data()[1];
}

// A batch with memory of its own, where an asynchronous pool writes before a program asks.
class OwnBatch {
 public:
  explicit OwnBatch(const Pool& pool) {
    batch = BatchOver(pool, [this](const Part& part) {
      memory_.push_back(std::make_unique<std::byte[]>(part.bytes()));
      return memory_.back().get();
    });
  }

  Batch batch;

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace

// A pool that programs may call.
struct CallableState {
  std::mutex mutex;                                // held during a call
  Pool* pool;                                      // null once it is closed
  std::atomic<std::uint32_t> token = kAnyToken;    // of the last call
  std::vector<std::unique_ptr<OwnBatch>> batches;  // provided in this order, round and round
  std::size_t received = 0;

  explicit CallableState(Pool* the_pool) : pool(the_pool) {}

  // Counts a call, so that the tokens of those before serve no more.
  std::uint32_t NextToken() {
    if (++token == kAnyToken) ++token;
    return token;
  }

  void Provide() {
    if (!batches.empty()) return;
    for (int i = 0; i < pool->ProvisionNeeded(); ++i) {
      batches.push_back(std::make_unique<OwnBatch>(*pool));
      pool->Provide(&batches.back()->batch);
    }
  }

  // Copies the oldest batch, whose memory is then provided anew.
  void Receive(Batch* results) {
    const int in_flight = pool->in_flight();
    const auto recycle = [&] {
      if (pool->in_flight() == in_flight) return;
      pool->Provide(&batches[received++ % batches.size()]->batch);
    };
    try {
      const std::vector<Part> from = PartsOf(*pool, *pool->Receive());
      const std::vector<Part> to = PartsOf(*pool, *results);
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (to[i].count > 0) std::memcpy(to[i].data, from[i].data, to[i].bytes());
      }
    } catch (...) {
      recycle();
      throw;
    }
    recycle();
  }
};

namespace {

std::mutex registry_mutex;
std::uint32_t last_handle = 0;
std::map<std::uint32_t, std::shared_ptr<CallableState>> registry;

std::shared_ptr<CallableState> Find(std::uint32_t handle) {
  std::lock_guard lock(registry_mutex);
  const auto found = registry.find(handle);
  return found == registry.end() ? nullptr : found->second;
}

// XLA's threads flush denormal numbers to zero. Environments compute as everywhere else, so that
// their trajectories are the same.
class UsualArithmetic {
 public:
  UsualArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualArithmetic() { std::fesetenv(&before_); }
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

// Does `work` for the pool if its turn has come. Whatever may have moved the pool moves the token.
template <typename Work>
ffi::Error Call(Number handle, Number token, NextNumber next, Work work) {
  const std::shared_ptr<CallableState> state = Find(*handle.typed_data());
  if (!state) return ffi::Error::InvalidArgument(kClosed);
  std::lock_guard lock(state->mutex);
  if (!state->pool) return ffi::Error::InvalidArgument(kClosed);
  if (*token.typed_data() != kAnyToken && *token.typed_data() != state->token) {
    return ffi::Error(ffi::ErrorCode::kFailedPrecondition,
                      "this is not the pool's present state: another call was made since. Give "
                      "each call the state that the call before it gave, or begin again with "
                      "init(), which goes on from wherever the pool stands");
  }
  const UsualArithmetic arithmetic;
  try {
    work(*state);
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::exception& error) {
    state->NextToken();
    return ffi::Error::Internal(error.what());
  }
  *next->typed_data() = state->NextToken();
  return ffi::Error::Success();
}

ffi::Error Reset(Number handle, Number token, Seed seed, NextNumber next,
                 ffi::RemainingRets results) {
  return Call(handle, token, next, [&](CallableState& state) {
    Batch batch = ResultsOf(*state.pool, results);
    state.pool->Reset(SeedOf(seed), &batch);
  });
}

ffi::Error Step(Number handle, Number token, ffi::AnyBuffer actions, NextNumber next,
                ffi::RemainingRets results) {
  return Call(handle, token, next, [&](CallableState& state) {
    Batch batch = ResultsOf(*state.pool, results);
    state.pool->Step(ActionsOf(*state.pool, actions), &batch);
  });
}

ffi::Error AsyncReset(Number handle, Number token, Seed seed, NextNumber next) {
  return Call(handle, token, next, [&](CallableState& state) {
    state.Provide();
    state.pool->SendReset(SeedOf(seed));
  });
}

ffi::Error Send(Number handle, Number token, ffi::AnyBuffer actions, EnvIds env_ids,
                NextNumber next) {
  return Call(handle, token, next, [&](CallableState& state) {
    state.pool->Send(ActionsOf(*state.pool, actions),
                     {env_ids.typed_data(), env_ids.element_count()});
  });
}

ffi::Error Receive(Number handle, Number token, NextNumber next, ffi::RemainingRets results) {
  return Call(handle, token, next, [&](CallableState& state) {
    Batch batch = ResultsOf(*state.pool, results);
    state.Receive(&batch);
  });
}

// What every call begins with.
auto Bind() { return ffi::Ffi::Bind().Arg<Number>().Arg<Number>(); }

XLA_FFI_DEFINE_HANDLER(kReset, Reset, Bind().Arg<Seed>().Ret<Number>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kStep, Step, Bind().Arg<ffi::AnyBuffer>().Ret<Number>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kAsyncReset, AsyncReset, Bind().Arg<Seed>().Ret<Number>());
XLA_FFI_DEFINE_HANDLER(kSend, Send, Bind().Arg<ffi::AnyBuffer>().Arg<EnvIds>().Ret<Number>());
XLA_FFI_DEFINE_HANDLER(kReceive, Receive, Bind().Ret<Number>().RemainingRets());

}  // namespace

CallablePool::CallablePool(Pool* pool) : state_(std::make_shared<CallableState>(pool)) {
  std::lock_guard lock(registry_mutex);
  handle_ = ++last_handle;
  registry[handle_] = state_;
}

std::uint32_t CallablePool::last_token() const { return state_->token; }

CallablePool::~CallablePool() {
  Close();
  std::lock_guard lock(registry_mutex);
  registry.erase(handle_);
}

void CallablePool::Close() {
  std::lock_guard lock(state_->mutex);
  state_->pool = nullptr;
}

std::span<const XlaCall> PoolCalls() {
  static const XlaCall calls[] = {
      {"srl_pool_reset", reinterpret_cast<void*>(kReset)},
      {"srl_pool_step", reinterpret_cast<void*>(kStep)},
      {"srl_pool_async_reset", reinterpret_cast<void*>(kAsyncReset)},
      {"srl_pool_send", reinterpret_cast<void*>(kSend)},
      {"srl_pool_recv", reinterpret_cast<void*>(kReceive)},
  };
  return calls;
}

}  // namespace srl
