// Walks left or right from near 0 until it is `goal` steps away; the right side pays.

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "srl/environment.h"
#include "srl/export_plugin.h"

namespace {

class Walk : public srl::Environment {
 public:
  static srl::Specs MakeSpecs(const srl::Options& options) {
    options.RefuseUnknown({"goal"});
    return {.agents = {"agent"},
            .observation = {{"", srl::Space::Box(srl::DType::kFloat32, {1}, {-1000}, {1000})}},
            .action = srl::Space::Discrete(2),
            .statistics = {"rightmost"},
            .max_episode_steps = 200};
  }

  explicit Walk(const srl::Options& options) : goal_(options.Get("goal", 10)) {
    if (goal_ < 2 || goal_ > 1000) {
      throw std::invalid_argument("option 'goal' = " + std::to_string(goal_) +
                                  ", expected 2 to 1000");
    }
  }

  void Reset(srl::Random& random) override { place_ = rightmost_ = random.Integer(-1, 1); }

  void Step(const std::byte* action, srl::Random&) override {
    place_ += *reinterpret_cast<const std::int32_t*>(action) == 1 ? 1 : -1;
    if (place_ > rightmost_) rightmost_ = place_;
  }

  void Write(const srl::Rows& rows) const override {
    *rows.Observation<float>() = static_cast<float>(place_);
    *rows.reward = place_ >= goal_ ? 1.0f : 0.0f;
    *rows.terminated = std::abs(place_) >= goal_;
    *rows.truncated = false;
    *rows.statistics = static_cast<float>(rightmost_);
  }

  void Serialize(srl::Archive& archive) override {
    archive.Value(place_);
    archive.Value(rightmost_);
  }

 private:
  int goal_;
  int place_ = 0;
  int rightmost_ = 0;
};

SRL_REGISTER_ENVIRONMENT("Walk-v0", Walk);

}  // namespace

SRL_EXPORT_PLUGIN;
