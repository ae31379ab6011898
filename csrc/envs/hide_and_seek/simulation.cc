#include "envs/hide_and_seek/simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <stdexcept>
#include <string>

namespace srl::hide_and_seek {
namespace {

constexpr int kSubsteps = 15;

Block MakeBlock(const mjtNum* center, const mjtNum* rotation, const mjtNum* half) {
  return {center[0], center[1], center[2], rotation[0], rotation[3], half[0], half[1], half[2]};
}

// A copy of a template and its data, in which a thread computes all worlds of that kind.
struct ThreadMemory {
  ModelPointer model;
  DataPointer data;
};

ThreadMemory& MemoryFor(const mjModel& source) {
  static thread_local std::map<const mjModel*, ThreadMemory> memories;
  ThreadMemory& memory = memories[&source];
  if (!memory.data) {
    memory.model.reset(mj_copyModel(nullptr, &source));
    if (memory.model) memory.data.reset(mj_makeData(memory.model.get()));
    if (!memory.data) throw std::bad_alloc();
  }
  return memory;
}

thread_local bool thread_is_in_use = false;

void CheckThreadIsFree() {
  if (thread_is_in_use) throw std::logic_error("the thread computes with another world already");
}

}  // namespace

Simulation::Simulation(const Config& config)
    : config_(config),
      first_body_(FirstThingBody(config)),
      num_boxes_(config.boxes_max),  // the most, so that the row has room and no episode allocates
      source_(&TemplateModel(config, config.boxes_max)) {
  CheckThreadIsFree();
  Attach(*source_);
  Save();
  row_.shrink_to_fit();
  Detach();
}

Simulation::Loaded::Loaded(const Simulation* simulation) : simulation_(*simulation) {
  CheckThreadIsFree();
  simulation_.Load();
  thread_is_in_use = true;
}

Simulation::Loaded::Loaded(Simulation* simulation)
    : Loaded(static_cast<const Simulation*>(simulation)) {
  to_save_ = simulation;
}

Simulation::Loaded::~Loaded() {
  thread_is_in_use = false;
  if (to_save_ != nullptr) to_save_->Save();
  simulation_.Detach();
}

void Simulation::Attach(const mjModel& source) const {
  const ThreadMemory& memory = MemoryFor(source);
  model_ = memory.model.get();
  data_ = memory.data.get();
  mujoco::ForgetArena(data_);
}

void Simulation::Detach() const {
  model_ = nullptr;
  data_ = nullptr;
}

void Simulation::Load() const {
  Attach(*source_);
  Archive archive{std::span<const std::byte>(row_)};
  SerializeFurniture(archive, model_);
  SerializeState(archive);
}

void Simulation::Save() {
  row_.clear();
  Archive archive(&row_);
  SerializeFurniture(archive, model_);
  SerializeState(archive);
}

void Simulation::Build(const World& world) {
  const mjModel& source = TemplateModel(config_, world.num_boxes);
  Attach(source);
  source_ = &source;
  num_boxes_ = world.num_boxes;
  mj_copyModel(model_, source_);
  Furnish(config_, world, model_, data_);
  mj_resetData(model_, data_);
}

void Simulation::Start(const World& world) {
  Build(world);
  const int things = model_->nq / kJoints;
  for (int i = 0; i < things; ++i) {
    data_->qpos[kJoints * i] = world.corners[i].x;
    data_->qpos[kJoints * i + 1] = world.corners[i].y;
  }
  mj_forward(model_, data_);
}

void Simulation::Advance(std::span<const double> control) {
  std::copy(control.begin(), control.end(), data_->ctrl);
  if (tape_ != nullptr) tape_->push_back(CurrentSettings());
  for (int i = 0; i < kSubsteps; ++i) {
    mj_step(model_, data_);
    if (diverged()) return;
  }
  mj_kinematics(model_, data_);
}

StepSettings Simulation::CurrentSettings() const {
  const mjModel& model = *model_;
  StepSettings settings;
  settings.control.assign(data_->ctrl, data_->ctrl + model.nu);
  settings.weld.assign(model.eq_data, model.eq_data + mjNEQDATA * model.neq);
  settings.range.assign(model.jnt_range, model.jnt_range + 2 * model.njnt);
  settings.held.assign(model.eq_obj2id, model.eq_obj2id + model.neq);
  settings.grips.assign(data_->eq_active, data_->eq_active + model.neq);
  settings.limited.assign(model.jnt_limited, model.jnt_limited + model.njnt);
  for (int i = 0; i < model.nv; ++i) {
    if (data_->qvel[i] == 0.0 && std::signbit(data_->qvel[i])) settings.woken.push_back(i);
  }
  return settings;
}

void Replay(const StepSettings& settings, mjModel* model, mjData* data) {
  std::copy(settings.control.begin(), settings.control.end(), data->ctrl);
  std::copy(settings.weld.begin(), settings.weld.end(), model->eq_data);
  std::copy(settings.range.begin(), settings.range.end(), model->jnt_range);
  std::copy(settings.held.begin(), settings.held.end(), model->eq_obj2id);
  std::copy(settings.grips.begin(), settings.grips.end(), data->eq_active);
  std::copy(settings.limited.begin(), settings.limited.end(), model->jnt_limited);
  for (int i : settings.woken) data->qvel[i] = -0.0;
  for (int i = 0; i < kSubsteps; ++i) mj_step(model, data);
}

bool Simulation::diverged() const { return mujoco::Failed(*data_); }

double Simulation::Distance(int agent, int object) const {
  const int body = first_body_ + thing(object);
  const int geom = model_->body_geomadr[body];
  mjtNum offset[3];
  mjtNum local[3];
  mju_sub3(offset, center(agent).data(), center(thing(object)).data());
  mju_mulMatTVec3(local, data_->xmat + 9 * body, offset);
  double squared = 0.0;
  for (int i = 0; i < 3; ++i) {
    // For a ramp these are the mesh's half-sizes, though they belong to axes turned by 45
    // degrees: the original game measures so.
    const double outside = std::max(0.0, std::abs(local[i]) - model_->geom_size[3 * geom + i]);
    squared += outside * outside;
  }
  return std::sqrt(squared);
}

void Simulation::TakeHold(int agent, int object) {
  const int body1 = first_body_ + agent;
  const int body2 = first_body_ + thing(object);
  // Anchor (zero), then the object's place and turn in the agent's frame. The two last numbers
  // are the weight of turning and a zero without which the place would be computed anew.
  mjtNum* weld = model_->eq_data + mjNEQDATA * agent;
  mju_zero3(weld);
  mjtNum offset[3];
  mju_sub3(offset, data_->xpos + 3 * body2, data_->xpos + 3 * body1);
  mju_mulMatTVec3(weld + 3, data_->xmat + 9 * body1, offset);
  mjtNum inverse[4];
  mju_negQuat(inverse, data_->xquat + 4 * body1);
  mju_mulQuat(weld + 6, inverse, data_->xquat + 4 * body2);
  weld[10] = 1.0;
  weld[11] = 0.0;
  model_->eq_obj2id[agent] = body2;
}

void Simulation::Freeze(int object) {
  const int first = kJoints * thing(object);
  for (int joint = first; joint < first + kJoints; ++joint) {
    model_->jnt_limited[joint] = true;
    model_->jnt_range[2 * joint] = data_->qpos[joint];
    model_->jnt_range[2 * joint + 1] = data_->qpos[joint];
  }
}

void Simulation::Release(int object) {
  const int first = kJoints * thing(object);
  std::fill_n(model_->jnt_limited + first, kJoints, false);
  // A sleeping object would stay where it is, even in mid-air. MuJoCo wakes what has a velocity
  // of other bits than zero, and a negative zero is one that moves nothing.
  const int tree = model_->body_treeid[first_body_ + thing(object)];
  if (data_->tree_asleep[tree] >= 0) data_->qvel[first] = -0.0;
}

void Simulation::FillScene(Scene* scene) const {
  scene->Clear();
  for (int i = 0; i < config_.max_walls(); ++i) {
    const mjtNum* half = model_->geom_size + 3 * (kFirstWallGeom + i);
    const mjtNum* center = model_->body_pos + 3 * (kFirstWallBody + i);
    if (center[2] > 0.0) {
      scene->walls.push_back({center[0], center[1], center[2], 1, 0, half[0], half[1], half[2]});
    }
  }
  for (int i = 0; i < kAgentGeoms * config_.agents(); ++i) {
    const mjtNum* center = data_->geom_xpos + 3 * (FirstAgentGeom(config_) + i);
    const double radius = model_->geom_size[3 * (FirstAgentGeom(config_) + i)];
    scene->spheres.push_back({center[0], center[1], center[2], radius});
  }
  static constexpr HalfSize kRamp = {kRampHalf, kRampHalf, kRampHalf};
  if (config_.task == TaskKind::kShelter) {
    const int body = first_body_ + thing(num_boxes_ + config_.ramps);
    const int geom = model_->body_geomadr[body];
    const mjtNum* center = model_->body_pos + 3 * body;
    const mjtNum* size = model_->geom_size + 3 * geom;  // radius, half of the height
    scene->cylinders.push_back({center[0], center[1], center[2], size[0], size[1]});
  }
  for (int i = 0; i < num_boxes_ + config_.ramps; ++i) {
    const int body = first_body_ + thing(i);
    const bool ramp = i >= num_boxes_;
    const mjtNum* half = ramp ? kRamp.data() : model_->geom_size + 3 * model_->body_geomadr[body];
    (ramp ? scene->ramps : scene->boxes)
        .push_back(MakeBlock(data_->xpos + 3 * body, data_->xmat + 9 * body, half));
  }
}

void Simulation::SetPositions(int first, std::span<const double> values) {
  std::copy(values.begin(), values.end(), data_->qpos + kJoints * first);
  Refresh();
}

void Simulation::SetVelocities(int first, std::span<const double> values) {
  std::copy(values.begin(), values.end(), data_->qvel + kJoints * first);
  Refresh();
}

void Simulation::Refresh() {
  std::vector<mjtNum> state(mj_stateSize(model_, mjSTATE_INTEGRATION));
  mj_getState(model_, data_, state.data(), mjSTATE_INTEGRATION);
  mj_resetData(model_, data_);
  mj_setState(model_, data_, state.data(), mjSTATE_INTEGRATION);
  mj_forward(model_, data_);
}

void Simulation::Serialize(const World& world, Archive& archive) {
  if (archive.reading()) Build(world);
  SerializeState(archive);
}

void Simulation::SerializeState(Archive& archive) const {
  // What changes in the model during an episode: grips and locks.
  archive.Bytes(model_->eq_data, sizeof(mjtNum) * mjNEQDATA * model_->neq);
  archive.Bytes(model_->eq_obj2id, sizeof(int) * model_->neq);
  for (int i = 0; i < model_->neq; ++i) {
    const int body = model_->eq_obj2id[i];
    if (body < 0 || body >= model_->nbody) {
      throw std::runtime_error("the saved hide-and-seek state has a grip on body " +
                               std::to_string(body) + " of " + std::to_string(model_->nbody));
    }
  }
  archive.Bytes(model_->jnt_limited, sizeof(mjtBool) * model_->njnt);
  archive.Bytes(model_->jnt_range, sizeof(mjtNum) * 2 * model_->njnt);

  // The whole buffer of the data, not only MuJoCo's own notion of its state: what belongs to
  // sleeping objects is not computed again until they wake. It holds no pointers. The arena is
  // left out, as each step fills it anew.
  mjData& data = *data_;
  mjtSize size = data.nbuffer;
  archive.Value(size);
  if (size != data.nbuffer) {
    throw std::runtime_error("the saved hide-and-seek state has " + std::to_string(size) +
                             " bytes of physics, expected " + std::to_string(data.nbuffer) +
                             ": it comes from another version of MuJoCo");
  }
  archive.Bytes(data.buffer, size);
  archive.Value(data.time);
  archive.Value(data.ntree_awake);
  archive.Value(data.nbody_awake);
  archive.Value(data.nparent_awake);
  archive.Value(data.nv_awake);
  archive.Value(data.warning);
}

std::vector<std::byte> Simulation::SavedModel() const {
  std::vector<std::byte> bytes(mj_sizeModel(model_));
  mj_saveModel(model_, nullptr, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace srl::hide_and_seek
