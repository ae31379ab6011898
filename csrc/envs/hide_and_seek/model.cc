#include "envs/hide_and_seek/model.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>

namespace srl::hide_and_seek {
namespace {

constexpr double kParkedHeight = -20.0;  // where unused walls are, below the floor
constexpr double kParkedHalf = 0.05;
constexpr double kMass = 1.0;  // of each thing
constexpr double kCylinderHeight = 0.5;

using Color = std::array<float, 4>;
constexpr Color kHiderColor = {0.20f, 0.45f, 0.95f, 1.0f};
constexpr Color kSeekerColor = {0.90f, 0.20f, 0.18f, 1.0f};
constexpr Color kCubeColor = {0.60f, 0.40f, 0.22f, 1.0f};
constexpr Color kLongColor = {0.93f, 0.58f, 0.20f, 1.0f};
constexpr Color kInnerWallColor = {0.55f, 0.57f, 0.60f, 1.0f};
constexpr Color kOuterWallColor = {0.55f, 0.57f, 0.60f, 0.15f};  // or it would hide the room
constexpr Color kCylinderColor = {0.67f, 0.59f, 0.77f, 1.0f};
constexpr Color kParkedColor = {0.0f, 0.0f, 0.0f, 0.0f};

// Dense: the sparse Newton solver of MuJoCo 4.0 sometimes returns huge contact forces on worlds
// of this kind. No automatic reset: it would hide a divergence, which must end the episode.
constexpr const char* kHead = R"(<mujoco model="hide_and_seek">
  <compiler angle="radian" autolimits="false"/>
  <option timestep="0.005" gravity="0 0 -50" jacobian="dense">
    <flag autoreset="disable"/>
  </option>
  <size memory="1M"/>
  <statistic center="3 3 0" extent="8"/>
  <visual>
    <global offwidth="1920" offheight="1440"/>
    <headlight ambient="0.35 0.35 0.35" diffuse="0.35 0.35 0.35" specular="0 0 0"/>
  </visual>
  <asset>
    <mesh name="ramp" vertex="-0.25 -0.25 -0.25  0.25 -0.25 -0.25  -0.25 0.25 -0.25
                              0.25 0.25 -0.25  -0.25 -0.25 0.25  0.25 -0.25 0.25"
          face="0 2 1  1 2 3  0 1 4  1 5 4  0 4 2  1 3 5  2 4 3  3 4 5"/>
  </asset>
  <worldbody>
    <light pos="3 3 9" dir="0.04 0.08 -1" directional="true" diffuse="0.5 0.5 0.5"/>
    <camera name="top" pos="3 3 10" fovy="45"/>
    <camera name="corner" pos="3 -4.5 7.5" xyaxes="1 0 0 0 0.7071 0.7071" fovy="45"/>
    <geom name="floor" type="plane" pos="3 3 0" size="9 9 1" friction="0.2"
          rgba="0.80 0.82 0.84 1"/>
)";

void WriteWall(int wall, std::ostream& xml) {
  xml << "<body name='wall" << wall << "' pos='0 0 " << kParkedHeight << "'><geom name='wall"
      << wall << "' type='box' size='" << kParkedHalf << ' ' << kParkedHalf << ' ' << kParkedHalf
      << "'/></body>\n";
}

// One thing's four joints; `damping` is that of x, y, z and the turn.
void WriteJoints(const std::string& name, const std::array<double, kJoints>& damping,
                 std::ostream& xml) {
  static constexpr std::array<const char*, kJoints> kNames = {"x", "y", "z", "turn"};
  static constexpr std::array<const char*, kJoints> kAxes = {"1 0 0", "0 1 0", "0 0 1", "0 0 1"};
  for (int i = 0; i < kJoints; ++i) {
    xml << "<joint name='" << name << '_' << kNames[i] << "' type='" << (i < 3 ? "slide" : "hinge")
        << "' axis='" << kAxes[i] << "' damping='" << damping[i] << "'/>\n";
  }
}

void WriteAgent(int agent, std::ostream& xml) {
  const std::string name = "agent" + std::to_string(agent);
  xml << "<body name='" << name << "' pos='0.15 0.15 0.15'>\n"
      << "<inertial pos='0 0 0' mass='1' diaginertia='0.009 0.009 0.009'/>\n";
  WriteJoints(name, {10, 10, 1, 10}, xml);
  xml << "<geom name='" << name << "' type='sphere' size='0.15' friction='0.01'/>\n";
  for (const auto& [arm, x] : {std::pair("_arm0", "-0.13"), std::pair("_arm1", "0.13")}) {
    xml << "<geom name='" << name << arm << "' type='sphere' size='0.05' friction='0.01' pos='" << x
        << " -0.075 -0.05'/>\n";
  }
  xml << "</body>\n";
}

void WriteBox(int box, std::ostream& xml) {
  const std::string name = "box" + std::to_string(box);
  xml << "<body name='" << name << "' pos='0.25 0.25 0.25'>\n"
      << "<inertial pos='0 0 0' mass='1' diaginertia='0.04 0.04 0.04'/>\n";
  WriteJoints(name, {0.01, 0.01, 0.01, 0.01}, xml);
  xml << "<geom name='" << name << "' type='box' size='0.25 0.25 0.25' friction='0.2'/></body>\n";
}

void WriteRamp(int ramp, std::ostream& xml) {
  const std::string name = "ramp" + std::to_string(ramp);
  xml << "<body name='" << name << "' pos='0.25 0.25 0.25'>\n";
  WriteJoints(name, {0.1, 0.1, 0.1, 0.1}, xml);
  xml << "<geom name='" << name << "' type='mesh' mesh='ramp' mass='1' friction='0.01'"
      << " rgba='0.95 0.83 0.25 1'/></body>\n";
}

std::string TemplateXml(const Config& config, int boxes) {
  const int agents = config.agents();
  std::ostringstream xml;
  xml << kHead;
  for (int i = 0; i < config.max_walls(); ++i) WriteWall(i, xml);
  for (int i = 0; i < agents; ++i) WriteAgent(i, xml);
  for (int i = 0; i < boxes; ++i) WriteBox(i, xml);
  for (int i = 0; i < config.ramps; ++i) WriteRamp(i, xml);
  if (config.task == TaskKind::kShelter) {
    xml << "<body name='cylinder'><geom name='cylinder' type='cylinder' size='1 "
        << kCylinderHeight / 2 << "'/></body>\n";
  }
  xml << "</worldbody>\n<actuator>\n";
  for (int i = 0; i < agents; ++i) {
    for (const char* joint : {"x", "y", "turn"}) {
      xml << "<motor joint='agent" << i << '_' << joint << "' gear='100'/>\n";
    }
  }
  xml << "</actuator>\n<equality>\n";
  for (int i = 0; i < agents; ++i) {
    xml << "<weld body1='agent" << i << "' body2='box0' active='false'/>\n";
  }
  xml << "</equality>\n</mujoco>\n";
  return xml.str();
}

struct SpecDeleter {
  void operator()(mjSpec* spec) const { mj_deleteSpec(spec); }
};

ModelPointer Compile(const std::string& xml) {
  std::array<char, 1024> error = {};
  const std::unique_ptr<mjSpec, SpecDeleter> spec(
      mj_parseXMLString(xml.c_str(), nullptr, error.data(), error.size()));
  if (!spec) throw std::runtime_error(std::string("hide and seek model: ") + error.data());
  ModelPointer model(mj_compile(spec.get(), nullptr));
  if (!model) {
    throw std::runtime_error(std::string("hide and seek model: ") + mjs_getError(spec.get()));
  }
  return model;
}

void SetColor(const Color& color, int geom, mjModel* model) {
  std::copy(color.begin(), color.end(), model->geom_rgba + 4 * geom);
}

void FurnishWalls(const Config& config, const World& world, mjModel* model) {
  for (int i = 0; i < config.max_walls(); ++i) {
    mjtNum* position = model->body_pos + 3 * (kFirstWallBody + i);
    mjtNum* half = model->geom_size + 3 * (kFirstWallGeom + i);
    model->geom_friction[3 * (kFirstWallGeom + i)] = config.wall_friction;
    if (i >= world.num_walls) {
      mju_copy3(position, std::array{0.0, 0.0, kParkedHeight}.data());
      mju_copy3(half, std::array{kParkedHalf, kParkedHalf, kParkedHalf}.data());
      SetColor(kParkedColor, kFirstWallGeom + i, model);
      continue;
    }
    const Wall& wall = world.walls[i];
    mju_copy3(position, std::array{wall.x, wall.y, wall.height / 2}.data());
    mju_copy3(half, std::array{wall.half_x, wall.half_y, wall.height / 2}.data());
    SetColor(wall.height > 1.0 ? kOuterWallColor : kInnerWallColor, kFirstWallGeom + i, model);
  }
}

void FurnishBoxes(const Config& config, const World& world, mjModel* model) {
  for (int i = 0; i < world.num_boxes; ++i) {
    const auto& [x, y, z] = world.box_half[i];
    const int body = FirstThingBody(config) + config.agents() + i;
    const int geom = FirstAgentGeom(config) + kAgentGeoms * config.agents() + i;
    mju_copy3(model->body_pos + 3 * body, world.box_half[i].data());
    mju_copy3(model->geom_size + 3 * geom, world.box_half[i].data());
    const std::array inertia = {y * y + z * z, x * x + z * z, x * x + y * y};
    mju_scl3(model->body_inertia + 3 * body, inertia.data(), kMass / 3.0);
    SetColor(x == y ? kCubeColor : kLongColor, geom, model);
  }
}

void FurnishCylinder(const World& world, mjModel* model) {
  const int body = model->nbody - 1;
  const int geom = model->ngeom - 1;
  mju_copy3(model->body_pos + 3 * body,
            std::array{world.cylinder.x, world.cylinder.y, kCylinderHeight / 2}.data());
  model->geom_size[3 * geom] = world.cylinder_radius;
  SetColor(kCylinderColor, geom, model);
}

}  // namespace

const mjModel& TemplateModel(const Config& config, int num_boxes) {
  static std::mutex mutex;
  static std::map<std::array<int, 5>, ModelPointer> templates;
  const std::lock_guard lock(mutex);
  mujoco::ThrowErrors();
  const bool cylinder = config.task == TaskKind::kShelter;
  ModelPointer& model =
      templates[{config.agents(), num_boxes, config.ramps, config.max_walls(), cylinder}];
  if (!model) model = Compile(TemplateXml(config, num_boxes));
  return *model;
}

void Furnish(const Config& config, const World& world, mjModel* model, mjData* data) {
  // Set before the reset: it decides which objects may fall asleep.
  if (config.sleep) {
    model->opt.enableflags |= mjENBL_SLEEP;
  } else {
    model->opt.enableflags &= ~mjENBL_SLEEP;
  }
  FurnishWalls(config, world, model);
  FurnishBoxes(config, world, model);
  if (config.task == TaskKind::kShelter) FurnishCylinder(world, model);
  for (int agent = 0; agent < config.agents(); ++agent) {
    for (int i = 0; i < kAgentGeoms; ++i) {
      SetColor(config.team(agent) == 0 ? kHiderColor : kSeekerColor,
               FirstAgentGeom(config) + kAgentGeoms * agent + i, model);
    }
  }
  // The view is that of the template, whatever the walls are. The mean inertia, by which the solver
  // scales its tolerance, is computed by the compiler alone.
  const mjStatistic view = model->stat;
  mj_setConst(model, data);
  model->stat.extent = view.extent;
  mju_copy3(model->stat.center, view.center);
  model->stat.meaninertia = mju_sum(model->dof_M0, model->nv) / model->nv;
}

void SerializeFurniture(Archive& archive, mjModel* model) {
  const auto numbers = [&archive](auto* values, int rows, int columns = 1) {
    archive.Bytes(values, sizeof(*values) * rows * columns);
  };
  archive.Value(model->opt.enableflags);
  archive.Value(model->stat.meaninertia);
  numbers(model->body_pos, model->nbody, 3);
  numbers(model->body_inertia, model->nbody, 3);
  numbers(model->geom_size, model->ngeom, 3);
  numbers(model->geom_friction, model->ngeom, 3);
  numbers(model->geom_rgba, model->ngeom, 4);
  // What mj_setConst computes from these.
  numbers(model->body_invweight0, model->nbody, 2);
  numbers(model->dof_M0, model->nv);
  numbers(model->dof_invweight0, model->nv);
  numbers(model->dof_length, model->nv);
  numbers(model->geom_aabb, model->ngeom, 6);
  numbers(model->geom_rbound, model->ngeom);
  numbers(model->bvh_aabb, model->nbvh, 6);
  numbers(model->cam_poscom0, model->ncam, 3);
  numbers(model->light_poscom0, model->nlight, 3);
}

}  // namespace srl::hide_and_seek
