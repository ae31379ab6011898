#include "envs/mujoco/engine.h"

#include <mujoco/mjxmacro.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

namespace srl::mujoco {
namespace {

constexpr std::array kFailures = {mjWARN_CONTACTFULL, mjWARN_CNSTRFULL, mjWARN_BADQPOS,
                                  mjWARN_BADQVEL,     mjWARN_BADQACC,   mjWARN_BADCTRL};

}  // namespace

void ThrowErrors() {
  static std::once_flag once;
  std::call_once(once, [] {
    // The file would lie in the working directory, written by all environments at once. Warnings
    // still reach the console, and what they mean is counted in the episode's statistics.
    mjLogConfig log = mju_getLogConfig();
    log.logto_file = false;
    mju_setLogConfig(log);
    if (mju_user_error) return;  // somebody else handles them
    mju_user_error = [](const char* message) {
      throw std::runtime_error(std::string("MuJoCo: ") + message);
    };
  });
}

namespace {

struct ThreadArena {
  std::unique_ptr<void, decltype(&mju_free)> memory{nullptr, mju_free};
  mjtSize size = 0;
  bool in_use = false;
};
thread_local ThreadArena thread_arena;

// Makes `data` compute in `arena`, and forgets what it holds in its present one: contacts and
// constraints, and the stack of a step that an error has ended. A copy of the data would follow
// pointers that were left behind.
void SetArena(mjData* data, void* arena) {
#define X(type, name, rows, columns) data->name = nullptr;
#define XNV X
  MJDATA_ARENA_POINTERS
#undef XNV
#undef X
  data->arena = arena;
  data->contact = static_cast<mjContact*>(arena);
  data->parena = data->pstack = data->pbase = 0;
  data->ncon = data->nefc = data->nisland = data->nidof = 0;
  data->nJ = data->nY = data->nA = 0;
  data->efm_active = 0;
  data->nefmT = data->nefmA = data->nefmK = data->nefmL = data->nefmdof = data->nefmcon = 0;
}

}  // namespace

SharedArena::SharedArena(mjData* data) : data_(data), own_(data->arena) {
  ThreadArena& shared = thread_arena;
  if (shared.in_use) throw std::logic_error("the thread computes with other data already");
  if (shared.size < data->narena) {
    shared.size = 0;
    shared.memory.reset(mju_malloc(data->narena));
    if (!shared.memory) throw std::bad_alloc();
    shared.size = data->narena;
  }
  shared.in_use = true;
  SetArena(data_, shared.memory.get());
}

SharedArena::~SharedArena() {
  SetArena(data_, own_);
  thread_arena.in_use = false;
}

void DropArena(mjData* data) {
  mju_free(data->arena);
  SetArena(data, nullptr);
}

bool Failed(const mjData& data) {
  return std::any_of(kFailures.begin(), kFailures.end(),
                     [&data](int kind) { return data.warning[kind].number > 0; });
}

}  // namespace srl::mujoco
