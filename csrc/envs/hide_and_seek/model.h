// The MuJoCo model of a hide-and-seek world.
#pragma once

#include "envs/hide_and_seek/config.h"
#include "envs/hide_and_seek/layout.h"
#include "envs/mujoco/engine.h"
#include "srl/archive.h"

namespace srl::hide_and_seek {

using mujoco::DataPointer;
using mujoco::ModelPointer;

inline constexpr int kJoints = 4;  // of each thing: slides x, y, z, then the turn about z
inline constexpr int kAgentGeoms = 3;
inline constexpr int kControls = 3;  // of each agent: forces x, y, torque about z
inline constexpr int kFirstWallBody = 1;
inline constexpr int kFirstWallGeom = 1;
inline int FirstThingBody(const Config& config) { return kFirstWallBody + config.max_walls(); }
inline int FirstAgentGeom(const Config& config) { return kFirstWallGeom + config.max_walls(); }

// The model of a world with this many things, compiled at the first call and then shared:
// a world is made by copying it and calling Furnish. Thread-safe. Agents' geoms come three
// together (the body and two arms), then one geom for each object, then the cylinder of a task that
// has one. Weld i is agent i's grip.
const mjModel& TemplateModel(const Config& config, int num_boxes);

// Turns a copy of the template into `world`: walls, sizes, friction, colours. `data` is scratch
// memory of the same model and needs a reset afterwards. Equal to compiling the world anew.
void Furnish(const Config& config, const World& world, mjModel* model, mjData* data);

// Saves or restores what Furnish changes: with the template, the model of a world.
void SerializeFurniture(Archive& archive, mjModel* model);

}  // namespace srl::hide_and_seek
