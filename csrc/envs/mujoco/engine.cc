#include "envs/mujoco/engine.h"

#include <mujoco/mjxmacro.h>

#include <algorithm>
#include <array>
#include <mutex>
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

void ForgetArena(mjData* data) {
#define X(type, name, rows, columns) data->name = nullptr;
#define XNV X
  MJDATA_ARENA_POINTERS
#undef XNV
#undef X
  data->contact = static_cast<mjContact*>(data->arena);
  data->parena = data->pstack = data->pbase = 0;
  data->ncon = data->ne = data->nf = data->nl = data->nefc = 0;
  data->nisland = data->nidof = 0;
  data->nJ = data->nY = data->nA = 0;
  data->efm_active = 0;
  data->nefmT = data->nefmA = data->nefmK = data->nefmL = data->nefmdof = data->nefmcon = 0;
}

bool Failed(const mjData& data) {
  return std::any_of(kFailures.begin(), kFailures.end(),
                     [&data](int kind) { return data.warning[kind].number > 0; });
}

}  // namespace srl::mujoco
