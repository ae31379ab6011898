#include "plugin/plugin_environment.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace srl {
namespace {

constexpr std::size_t kMostElements = std::size_t{1} << 31;

// The layouts of version 1.0, which libraries out there have: a minor version adds to the ends of
// SrlSpecs, SrlEnvironmentType and SrlPlugin alone.
constexpr std::size_t kSpecsBytes = 128;
static_assert(sizeof(void*) == 8);
static_assert(sizeof(SrlError) == 1024 && sizeof(SrlOption) == 24 && sizeof(SrlRandom) == 32);
static_assert(sizeof(SrlSpace) == 64 && sizeof(SrlField) == 72 && sizeof(SrlRows) == 40);
static_assert(sizeof(SrlSpecs) >= kSpecsBytes && sizeof(SrlEnvironmentType) >= 104);
static_assert(offsetof(SrlSpecs, max_episode_steps) == 120);
static_assert(offsetof(SrlEnvironmentType, model) == 96);

// Makes an exception of a status; `error` is as the library left it.
void Check(int status, SrlError& error) {
  if (status == SRL_OK) return;
  error.text[sizeof(error.text) - 1] = '\0';
  const std::string text = error.text[0] ? error.text : "it failed, and did not say why";
  if (status == SRL_REFUSED) throw std::invalid_argument(text);
  throw std::runtime_error(text);
}

// Calls a function of the library with `arguments` and an error.
template <typename Function, typename... Arguments>
void Call(Function function, Arguments... arguments) {
  SrlError error;
  error.text[0] = '\0';
  Check(function(arguments..., &error), error);
}

// What a library hands over is copied here. Nothing may be thrown across its frames, so what goes
// wrong meanwhile is kept until they are left.
template <typename T>
class Taker {
 public:
  template <typename Work>
  void Try(Work work) noexcept {
    try {
      work(value);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  T Take() {
    if (error_) std::rethrow_exception(error_);
    return std::move(value);
  }

  T value;

 private:
  std::exception_ptr error_;
};

void TakeBytes(void* taker, const void* data, std::size_t size) {
  static_cast<Taker<std::vector<std::byte>>*>(taker)->Try([&](std::vector<std::byte>& bytes) {
    const auto* first = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), first, first + size);
  });
}

using Numbers = std::map<std::string, std::vector<double>>;

void TakeNumbers(void* taker, const char* name, const double* values, std::size_t count) {
  static_cast<Taker<Numbers>*>(taker)->Try(
      [&](Numbers& numbers) { numbers[name] = {values, values + count}; });
}

// The options as C; what they point to is `options`.
std::vector<SrlOption> ToC(const Options& options) {
  std::vector<SrlOption> table;
  for (const auto& [name, value] : options.values()) {
    SrlOption option = {name.c_str(), static_cast<std::int32_t>(value.index()), {}};
    if (const auto* flag = std::get_if<bool>(&value)) {
      option.value.flag = *flag;
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      option.value.integer = *integer;
    } else if (const auto* number = std::get_if<double>(&value)) {
      option.value.number = *number;
    } else {
      option.value.text = std::get<std::string>(value).c_str();
    }
    table.push_back(option);
  }
  return table;
}

// ---- specs ----

void Demand(bool good, const std::string& space, const char* demand) {
  if (!good) throw std::runtime_error("its " + space + " " + demand);
}

template <typename T>
std::vector<T> ToVector(const T* first, std::size_t count) {
  Demand(first != nullptr || count == 0, "specs", "have a null pointer in place of an array");
  return {first, first + count};
}

std::vector<std::string> ToVector(const char* const* texts, std::size_t count) {
  Demand(texts != nullptr || count == 0, "specs", "have a null pointer in place of an array");
  for (const char* text : std::span(texts, count)) Demand(text, "specs", "have a null name");
  return {texts, texts + count};
}

void DemandUnique(std::vector<std::string> names, const char* kind) {
  std::sort(names.begin(), names.end());
  Demand(std::adjacent_find(names.begin(), names.end()) == names.end(), kind,
         "have one name twice");
}

bool Holds(DType dtype, double bound) {
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64) return true;
  if (dtype == DType::kBool) return bound == 0 || bound == 1;
  if (dtype == DType::kUint8) return bound >= 0 && bound <= 255;
  const double most = dtype == DType::kInt32 ? 0x1p31 : 0x1p63;
  return bound >= -most && bound < most;
}

Space ToSpace(const SrlSpace& given, const std::string& name) {
  Demand(given.kind >= SRL_BOX && given.kind <= SRL_MULTI_DISCRETE, name, "is no kind of space");
  Demand(given.dtype >= SRL_BOOL && given.dtype <= SRL_FLOAT64, name, "has no dtype");
  Space space;
  space.kind = static_cast<Space::Kind>(given.kind);
  space.dtype = static_cast<DType>(given.dtype);
  space.shape = ToVector(given.shape, given.rank);
  std::size_t elements = 1;
  for (int size : space.shape) {
    Demand(size >= 1, name, "has a shape with a side below 1");
    elements *= static_cast<std::size_t>(size);
    Demand(elements <= kMostElements, name, "is too large");
  }
  space.low = ToVector(given.low, given.num_bounds);
  space.high = ToVector(given.high, given.num_bounds);
  space.nvec = ToVector(given.counts, given.num_counts);
  if (space.kind == Space::Kind::kBox) {
    Demand(given.num_bounds == 1 || given.num_bounds == elements, name,
           "needs one bound for all elements or one for each");
    for (std::size_t i = 0; i < given.num_bounds; ++i) {
      Demand(space.low[i] <= space.high[i], name, "has a lower bound above the upper one");
      Demand(Holds(space.dtype, space.low[i]) && Holds(space.dtype, space.high[i]), name,
             "has a bound that its dtype does not hold");
    }
    return space;
  }
  Demand(given.dtype == SRL_INT32, name, "is discrete and must be int32");
  Demand(space.nvec.size() == elements, name, "is discrete and needs a count for each element");
  for (int count : space.nvec) Demand(count >= 1, name, "is discrete and has a count below 1");
  Demand(space.kind == Space::Kind::kMultiDiscrete || given.rank == 0, name,
         "is Discrete and has no shape");
  return space;
}

Specs ToSpecs(const SrlSpecs& table) {
  Demand(table.size >= kSpecsBytes, "specs", "do not tell their size");
  SrlSpecs given = {};  // with zeros for what an older version of the interface lacks
  std::memcpy(&given, &table, std::min(table.size, sizeof(given)));
  Specs specs;
  specs.agents = ToVector(given.agents, given.num_agents);
  specs.statistics = ToVector(given.statistics, given.num_statistics);
  specs.max_episode_steps = given.max_episode_steps;
  Demand(!specs.agents.empty(), "specs", "name no agent");
  DemandUnique(specs.agents, "agents");
  DemandUnique(specs.statistics, "statistics");
  Demand(specs.max_episode_steps >= 0, "specs", "have a max_episode_steps below 0");
  Demand(given.fields || given.num_fields == 0, "observation", "has a null pointer for its fields");
  for (const SrlField& field : std::span(given.fields, given.num_fields)) {
    Demand(field.name, "observation", "has a field whose name is null");
    const std::string name = field.name;
    Demand(!name.empty() || given.num_fields == 1, "observation", "has a field without a name");
    specs.observation.push_back(
        {name, ToSpace(field.space, "observation" + (name.empty() ? "" : " '" + name + "'"))});
  }
  Demand(!specs.observation.empty(), "observation", "has no fields");
  std::vector<std::string> names;
  for (const auto& field : specs.observation) names.push_back(field.name);
  DemandUnique(names, "observation's fields");
  specs.action = ToSpace(given.action, "action space");
  return specs;
}

void TakeSpecs(void* taker, const SrlSpecs* specs) {
  static_cast<Taker<Specs>*>(taker)->Try([&](Specs& value) { value = ToSpecs(*specs); });
}

// ---- the environment ----

class PluginEnvironment final : public Environment {
 public:
  PluginEnvironment(const PluginType& type, void* self) : table_(type.table), self_(self) {}
  ~PluginEnvironment() override { table_.destroy(self_); }
  PluginEnvironment(const PluginEnvironment&) = delete;
  PluginEnvironment& operator=(const PluginEnvironment&) = delete;

  void Reset(Random& random) override { Call(table_.reset, self_, &random.state()); }

  void Step(const std::byte* action, Random& random) override {
    Call(table_.step, self_, action, &random.state());
  }

  void Write(const Rows& rows) const override {
    const SrlRows table = {reinterpret_cast<void* const*>(rows.observation), rows.reward,
                           rows.terminated, rows.truncated, rows.statistics};
    Call(table_.write, self_, &table);
  }

  void Serialize(Archive& archive) override {
    std::vector<std::byte> state;
    if (archive.reading()) {
      archive.Vector(state);
      Call(table_.load, self_, state.data(), state.size());
      return;
    }
    Taker<std::vector<std::byte>> taker;
    Call(table_.save, self_, &TakeBytes, &taker);
    state = taker.Take();
    archive.Vector(state);
  }

  std::map<std::string, std::vector<double>> Inspect() const override {
    if (!table_.inspect) return {};
    Taker<Numbers> taker;
    Call(table_.inspect, self_, &TakeNumbers, &taker);
    return taker.Take();
  }

  void Inject(const std::string& name, const std::vector<double>& values) override {
    if (!table_.inject) return Environment::Inject(name, values);
    Call(table_.inject, self_, name.c_str(), values.data(), values.size());
  }

  std::vector<std::byte> Model() const override {
    if (!table_.model) return {};
    Taker<std::vector<std::byte>> taker;
    Call(table_.model, self_, &TakeBytes, &taker);
    return taker.Take();
  }

 private:
  const SrlEnvironmentType table_;
  void* const self_;
};

}  // namespace

Specs DescribePlugin(const PluginType& type, const Options& options) {
  const std::vector<SrlOption> table = ToC(options);
  Taker<Specs> taker;
  Call(type.table.describe, type.self, table.data(), table.size(), &TakeSpecs, &taker);
  Specs specs = taker.Take();
  if (specs.agents.empty()) throw std::runtime_error("it gave no specs");
  return specs;
}

std::unique_ptr<Environment> MakePlugin(const PluginType& type, const Options& options) {
  const std::vector<SrlOption> table = ToC(options);
  void* self = nullptr;
  Call(type.table.make, type.self, table.data(), table.size(), &self);
  if (self == nullptr) throw std::runtime_error("it made no environment");
  return std::make_unique<PluginEnvironment>(type, self);
}

}  // namespace srl
