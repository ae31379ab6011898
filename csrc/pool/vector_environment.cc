#include "pool/vector_environment.h"

#include <algorithm>
#include <array>
#include <exception>
#include <stdexcept>

namespace srl {
namespace {

// Environments that are objects of their own, stepped one after the other.
class Individuals : public VectorEnvironment {
 public:
  Individuals(const EnvironmentType& type, const Options& options, int num_envs) {
    const Specs specs = type.specs(options);
    if (specs.observation.size() > kMaxFields) {
      throw std::invalid_argument("an observation has at most " + std::to_string(kMaxFields) +
                                  " fields");
    }
    agents_ = specs.agents.size();
    statistics_ = specs.statistics.size();
    action_bytes_ = agents_ * specs.action.Bytes();
    for (const Field& field : specs.observation) {
      field_bytes_.push_back(agents_ * field.space.Bytes());
    }
    for (int i = 0; i < num_envs; ++i) environments_.push_back(type.make(options));
  }

  void Step(const Lanes& lanes, Faults& faults) override {
    for (int lane = 0; lane < lanes.count; ++lane) {
      Environment& environment = At(lanes.first + lane);
      try {
        if (lanes.restart[lane]) {
          environment.Reset(lanes.random[lane]);
        } else {
          const auto offset = static_cast<std::size_t>(lane) * action_bytes_;
          environment.Step(lanes.actions + offset, lanes.random[lane]);
        }
      } catch (const std::exception& error) {
        faults.push_back({lane, error.what()});
      }
    }
  }

  void Write(int first, int count, const Rows& rows, Faults& faults) const override {
    std::array<std::byte*, kMaxFields> fields;
    std::copy_n(rows.observation, field_bytes_.size(), fields.begin());
    Rows row = rows;
    row.observation = fields.data();
    for (int lane = 0; lane < count; ++lane) {
      try {
        At(first + lane).Write(row);
      } catch (const std::exception& error) {
        faults.push_back({lane, error.what()});
      }
      for (std::size_t i = 0; i < field_bytes_.size(); ++i) fields[i] += field_bytes_[i];
      row.reward += agents_;
      row.terminated += agents_;
      row.truncated += agents_;
      row.statistics += statistics_;
    }
  }

  void Serialize(int index, Archive& archive) override { At(index).Serialize(archive); }

  std::map<std::string, std::vector<double>> Inspect(int index) const override {
    return At(index).Inspect();
  }

  void Inject(int index, const std::string& name, const std::vector<double>& values) override {
    At(index).Inject(name, values);
  }

  std::vector<std::byte> Model(int index) const override { return At(index).Model(); }

 private:
  Environment& At(int index) const { return *environments_[static_cast<std::size_t>(index)]; }

  std::vector<std::unique_ptr<Environment>> environments_;
  std::vector<std::size_t> field_bytes_;  // of all agents
  std::size_t agents_ = 1, statistics_ = 0, action_bytes_ = 0;
};

}  // namespace

std::unique_ptr<VectorEnvironment> MakeEnvironments(const EnvironmentType& type,
                                                    const Options& options, int num_envs) {
  if (type.make_all) return type.make_all(options, num_envs);
  return std::make_unique<Individuals>(type, options, num_envs);
}

}  // namespace srl
