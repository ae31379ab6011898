// Fails where its options say.

#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>

#include "srl/environment.h"
#include "srl/export_plugin.h"

namespace {

class Faulty : public srl::Environment {
 public:
  static srl::Specs MakeSpecs(const srl::Options& options) {
    const std::string specs = options.Get("specs", "good");
    srl::Specs result = {
        .agents = {"agent"},
        .observation = {{"", srl::Space::Box(srl::DType::kFloat32, {2}, {0}, {9})}},
        .action = srl::Space::Discrete(2),
        .statistics = {},
        .max_episode_steps = 0};
    if (specs == "agentless") result.agents.clear();
    if (specs == "flat") result.observation[0].space.shape = {0};
    if (specs == "unbounded") result.observation[0].space.low = {0, 0, 0};
    if (specs == "twins") result.agents = {"agent", "agent"};
    if (specs == "doubled") {
      result.observation[0].name = "part";
      result.observation.push_back(result.observation[0]);
    }
    if (specs == "huge") {
      result.observation[0].space.dtype = srl::DType::kUint8;
      result.observation[0].space.high = {300};
    }
    if (specs == "upside-down") result.observation[0].space.low = {10};
    if (specs == "wide") result.action.dtype = srl::DType::kInt64;
    if (specs == "double") result.observation[0].space.dtype = srl::DType::kFloat64;
    if (specs == "typeless") result.action.dtype = static_cast<srl::DType>(77);
    return result;
  }

  explicit Faulty(const srl::Options& options) : fault_(options.Get("fault", "none")) {
    if (fault_ == "make") throw std::runtime_error("the licence has expired");
    if (fault_ == "long") throw std::runtime_error(std::string(5000, 'x'));
  }

  void Reset(srl::Random&) override { Fail("reset"); }

  void Step(const std::byte*, srl::Random&) override {
    Fail("step");
    if (fault_ == "number") throw 42;
    while (fault_ == "hang" && ++steps_ > 40) std::this_thread::sleep_for(std::chrono::hours(1));
  }

  void Write(const srl::Rows& rows) const override {
    Fail("write");
    float* observation = rows.Observation<float>();
    observation[0] = observation[1] = fault_ == "nan" ? NAN : 1.0f;
    *rows.reward = 0;
    *rows.terminated = *rows.truncated = false;
  }

  void Serialize(srl::Archive& archive) override {
    Fail("save");
    if (fault_ == "load" && archive.reading()) return;  // leaves bytes
    int state = 1;
    archive.Value(state);
  }

 private:
  void Fail(const std::string& place) const {
    if (fault_ == place) throw std::runtime_error("broke in " + place);
  }

  std::string fault_;
  int steps_ = 0;
};

class Other : public Faulty {
  using Faulty::Faulty;
};

SRL_REGISTER_ENVIRONMENT("Faulty-v0", Faulty);
SRL_REGISTER_ENVIRONMENT("Other-v0", Other);

}  // namespace

SRL_EXPORT_PLUGIN;
