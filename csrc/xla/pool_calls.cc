#include "xla/pool_calls.h"

#include <atomic>
#include <cfenv>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "xla/calls.h"
#include "xla/ffi/api/ffi.h"

namespace srl {
namespace {

namespace ffi = xla::ffi;
using Number = ffi::BufferR0<ffi::U32>;
using NextNumber = ffi::ResultBufferR0<ffi::U32>;
using Seed = ffi::BufferR1<ffi::U32>;

constexpr char kClosed[] = "the pool is closed";

ffi::DataType ToXla(DType dtype) {
  static constexpr ffi::DataType kTypes[] = {ffi::PRED, ffi::U8,  ffi::S32,
                                             ffi::S64,  ffi::F32, ffi::F64};
  return kTypes[static_cast<int>(dtype)];
}

void DemandSameKind(bool same) {
  if (same) return;
  throw std::invalid_argument(
      "this program was traced for a pool of another size or environment than it is given");
}

// The memory of a call's results, which are checked: a program may be given any pool's handle.
Batch ResultsOf(const Pool& pool, const ffi::RemainingRets& results) {
  const Specs& specs = pool.specs();
  const auto rows = static_cast<std::size_t>(pool.num_envs());
  const std::size_t slots = rows * specs.agents.size();
  std::size_t index = 0;
  const auto next = [&](DType dtype, std::size_t count) {
    auto buffer = results.get<ffi::AnyBuffer>(index++);
    DemandSameKind(buffer.has_value() && (*buffer)->element_type() == ToXla(dtype) &&
                   (*buffer)->element_count() == count);
    return (*buffer)->untyped_data();
  };
  Batch batch;
  for (const auto& field : specs.observation) {
    void* memory = next(field.space.dtype, slots * field.space.Elements());
    batch.observation.push_back(static_cast<std::byte*>(memory));
  }
  batch.reward = static_cast<float*>(next(DType::kFloat32, slots));
  batch.terminated = static_cast<bool*>(next(DType::kBool, slots));
  batch.truncated = static_cast<bool*>(next(DType::kBool, slots));
  batch.episode_return = static_cast<float*>(next(DType::kFloat32, slots));
  batch.episode_length = static_cast<std::int32_t*>(next(DType::kInt32, rows));
  batch.statistics = static_cast<float*>(next(DType::kFloat32, rows * specs.statistics.size()));
  batch.env_id = static_cast<std::int32_t*>(next(DType::kInt32, rows));
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

}  // namespace

// A pool that programs may call.
struct CallableState {
  std::mutex mutex;                              // held during a call
  Pool* pool;                                    // null once it is closed
  std::atomic<std::uint32_t> token = kAnyToken;  // of the last call

  explicit CallableState(Pool* the_pool) : pool(the_pool) {}

  // Counts a call, so that the tokens of those before serve no more.
  std::uint32_t NextToken() {
    if (++token == kAnyToken) ++token;
    return token;
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

// What every call begins with.
auto Bind() { return ffi::Ffi::Bind().Arg<Number>().Arg<Number>(); }

XLA_FFI_DEFINE_HANDLER(kReset, Reset, Bind().Arg<Seed>().Ret<Number>().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kStep, Step, Bind().Arg<ffi::AnyBuffer>().Ret<Number>().RemainingRets());

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
  };
  return calls;
}

}  // namespace srl
