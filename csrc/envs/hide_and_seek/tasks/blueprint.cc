// Blueprint: boxes are to be moved onto marked squares (Baker et al., 2020, section 6).
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "envs/hide_and_seek/fields.h"
#include "envs/hide_and_seek/task.h"

namespace srl::hide_and_seek {
namespace {

constexpr double kSiteSize = 0.5;
constexpr double kSiteHeight = 0.25;  // where the centre of a box on the floor is
constexpr double kSiteMiddle = 0.85;  // sites are in the middle of the floor; share of its side
constexpr double kSmoothing = -1.5;   // of the smallest distance, 1/m; the larger, the sharper
constexpr double kDistanceCost = 0.05;
constexpr double kSiteReward = 3.0;  // for each site, when all are done
constexpr double kNear = 0.1;
constexpr int kCorners = 4;
constexpr int kSiteColumns = 3 + 3 * kCorners;

using Position = std::array<double, 3>;
using Corners = std::array<Position, kCorners>;

// Upright edges in the order of the original's columns: by x, then by y.
constexpr std::array<std::array<double, 2>, kCorners> kSigns = {
    {{-1, -1}, {-1, 1}, {1, -1}, {1, 1}}};

double Distance(const Position& a, const Position& b) {
  return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
}

Position SiteCenter(const World& world, int site) {
  return {world.sites[site].x, world.sites[site].y, kSiteHeight};
}

Corners SiteCorners(const World& world, int site) {
  Corners corners;
  const Position center = SiteCenter(world, site);
  for (int i = 0; i < kCorners; ++i) {
    corners[i] = {center[0] + kSigns[i][0] * kSiteSize / 2,
                  center[1] + kSigns[i][1] * kSiteSize / 2, center[2]};
  }
  return corners;
}

Position BoxCenter(const View& view, int box) {
  const auto center = view.center(box);
  return {center[0], center[1], center[2]};
}

// The middles of a box's upright edges.
Corners BoxCorners(const View& view, int box) {
  Corners corners;
  const Position center = BoxCenter(view, box);
  const double cosine = std::cos(view.position(box)[3]);
  const double sine = std::sin(view.position(box)[3]);
  for (int i = 0; i < kCorners; ++i) {
    const double x = kSigns[i][0] * view.episode.world.box_half[box][0];
    const double y = kSigns[i][1] * view.episode.world.box_half[box][1];
    corners[i] = {center[0] + cosine * x - sine * y, center[1] + sine * x + cosine * y, center[2]};
  }
  return corners;
}

// How far the boxes are from being on the sites.
struct Gap {
  double smooth = 0.0;    // from sites' corners to boxes' ones, the smallest softly, on average
  int sites_near = 0;     // sites with a box's centre near theirs
  bool complete = false;  // all sites, and each of their corners with one of a box
};

Gap Measure(const View& view) {
  const World& world = view.episode.world;
  std::array<Corners, kMaxBoxes> boxes;
  for (int box = 0; box < world.num_boxes; ++box) boxes[box] = BoxCorners(view, box);
  Gap gap;
  bool corners_near = true;
  for (int site = 0; site < world.num_sites; ++site) {
    const Position middle = SiteCenter(world, site);
    double nearest = std::numeric_limits<double>::infinity();
    for (int box = 0; box < world.num_boxes; ++box) {
      nearest = std::min(nearest, Distance(middle, BoxCenter(view, box)));
    }
    gap.sites_near += nearest < kNear;
    for (const Position& corner : SiteCorners(world, site)) {
      double sum = 0.0;
      double weights = 0.0;
      nearest = std::numeric_limits<double>::infinity();
      for (int box = 0; box < world.num_boxes; ++box) {
        for (const Position& other : boxes[box]) {
          const double distance = Distance(corner, other);
          const double weight = std::exp(kSmoothing * distance);
          sum += weight * distance;
          weights += weight;
          nearest = std::min(nearest, distance);
        }
      }
      gap.smooth += sum / weights / (kCorners * world.num_sites);
      corners_near &= nearest < kNear;
    }
  }
  gap.complete = corners_near && gap.sites_near == world.num_sites;
  return gap;
}

class Blueprint final : public Task {
 public:
  using Task::Task;

  bool Lay(WorldBuilder& builder) const override {
    builder.AddWalls(OuterWalls());
    if (!builder.PlaceAgent(0, DrawAnywhere())) return false;
    builder.DrawBoxSizes();
    if (!builder.PlaceBoxes(DrawAnywhere())) return false;
    World& world = builder.world();
    world.num_sites = builder.random().Integer(1, kMaxSites);
    for (int site = 0; site < world.num_sites; ++site) {
      Point corner;
      if (!builder.Place({kSiteSize, kSiteSize}, DrawInTheMiddle(kSiteMiddle), &corner))
        return false;
      world.sites[site] = MarkAt(corner, kSiteSize);
    }
    return true;
  }

  // Sites, padded with zeros where there are fewer; all are seen from everywhere.
  std::vector<Field> Fields() const override {
    return {NumbersField("construction_site_obs", {kMaxSites, kSiteColumns}),
            MaskField("mask_acs_obs", kMaxSites), MaskField("mask_acs_obs_spoof", kMaxSites)};
  }

  std::vector<std::string> Statistics() const override {
    return {"complete", "sites", "sites_near", "corner_distance"};
  }

  void Begin(const View& /*view*/) override {}

  void Judge(const View& view, const Verdict& verdict) override {
    const int num_sites = view.episode.world.num_sites;
    const Gap gap = Measure(view);
    const double reward =
        -kDistanceCost * gap.smooth + (gap.complete ? kSiteReward * num_sites : 0.0);
    verdict.reward[0] = static_cast<float>(reward);
    *verdict.terminated = gap.complete;
    verdict.statistics[0] = gap.complete;
    verdict.statistics[1] = static_cast<float>(num_sites);
    verdict.statistics[2] = static_cast<float>(gap.sites_near);
    verdict.statistics[3] = static_cast<float>(gap.smooth);
  }

  void Observe(const View& view, int /*agent*/, std::span<float* const> rows) const override {
    const World& world = view.episode.world;
    float* out = rows[0];
    const auto append = [&out](const Position& position) {
      for (double value : position) *out++ = static_cast<float>(value);
    };
    for (int site = 0; site < world.num_sites; ++site) {
      append(SiteCenter(world, site));
      for (const Position& corner : SiteCorners(world, site)) append(corner);
    }
    std::fill(out, rows[0] + kMaxSites * kSiteColumns, 0.0f);
    for (int site = 0; site < kMaxSites; ++site) {
      rows[1][site] = rows[2][site] = site < world.num_sites;
    }
  }

  void Serialize(Archive& /*archive*/) override {}
};

}  // namespace

std::unique_ptr<Task> MakeBlueprint(const Config& config) {
  return std::make_unique<Blueprint>(config);
}

}  // namespace srl::hide_and_seek
