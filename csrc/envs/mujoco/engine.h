// What all environments on MuJoCo share: owning pointers, and errors as exceptions.
#pragma once

#include <mujoco/mujoco.h>

#include <memory>

namespace srl::mujoco {

struct ModelDeleter {
  void operator()(mjModel* model) const { mj_deleteModel(model); }
};
struct DataDeleter {
  void operator()(mjData* data) const { mj_deleteData(data); }
};
using ModelPointer = std::unique_ptr<mjModel, ModelDeleter>;
using DataPointer = std::unique_ptr<mjData, DataDeleter>;

// To be called before a model is made: from here on an error that MuJoCo cannot recover from, such
// as a full arena, is thrown as std::runtime_error where it would have ended the process, and
// nothing is written to a log file. The `mjData` that was in use must then be reset. Thread-safe;
// later calls do nothing.
void ThrowErrors();

// Forgets what `data` holds in its arena: contacts and constraints, which no step needs of the one
// before, and the stack of a step that an error has ended. So it can serve another simulation of
// the same model.
void ForgetArena(mjData* data);

// Whether a warning since the last reset (or since `warning` was cleared) means that the state is
// not what the equations of motion give: numbers that are no numbers, or contacts left out.
bool Failed(const mjData& data);

}  // namespace srl::mujoco
