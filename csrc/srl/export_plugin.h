// Gives the environments that a library registers to srl, over the boundary of plugin.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "srl/environment.h"
#include "srl/plugin.h"

// In one file of the library.
#define SRL_EXPORT_PLUGIN                        \
  extern "C" SRL_PLUGIN_ENTRY {                  \
    static const ::srl::exported::Plugin plugin; \
    return plugin.table();                       \
  }                                              \
  static_assert(true, "the macro is followed by a semicolon")

namespace srl::exported {

inline int Tell(SrlError* error, const char* text, int status) {
  constexpr std::size_t kMost = sizeof(error->text) - 1;
  std::size_t size = std::strlen(text);
  if (size > kMost) {
    size = kMost;
    while ((text[size] & 0xc0) == 0x80) --size;  // not within a character
  }
  std::memcpy(error->text, text, size);
  error->text[size] = '\0';
  return status;
}

// Does `work`; what it throws becomes a status and a text.
template <typename Work>
int Guard(SrlError* error, Work work) noexcept {
  try {
    work();
    return SRL_OK;
  } catch (const std::invalid_argument& raised) {
    return Tell(error, raised.what(), SRL_REFUSED);
  } catch (const std::exception& raised) {
    return Tell(error, raised.what(), SRL_FAILED);
  } catch (...) {
    return Tell(error, "it threw something that is no std::exception", SRL_FAILED);
  }
}

inline Options ToOptions(const SrlOption* options, std::size_t count) {
  std::map<std::string, Options::Value> values;
  for (const SrlOption& option : std::span(options, count)) {
    Options::Value& value = values[option.name];
    switch (option.kind) {
      case SRL_FLAG:
        value = option.value.flag;
        break;
      case SRL_INTEGER:
        value = option.value.integer;
        break;
      case SRL_NUMBER:
        value = option.value.number;
        break;
      default:
        value = std::string(option.value.text);
    }
  }
  return Options(std::move(values));
}

// A space's description, whose pointers lead into `space`, the bounds made equally many.
inline SrlSpace ToC(Space& space) {
  const std::size_t bounds = std::max(space.low.size(), space.high.size());
  for (std::vector<double>* side : {&space.low, &space.high}) {
    if (side->size() == 1) side->resize(bounds, side->front());
  }
  if (space.low.size() != space.high.size()) {
    throw std::logic_error("a Box has " + std::to_string(space.low.size()) + " lower and " +
                           std::to_string(space.high.size()) + " upper bounds");
  }
  return {static_cast<std::int32_t>(space.kind),
          static_cast<std::int32_t>(space.dtype),
          space.shape.size(),
          space.shape.data(),
          bounds,
          space.low.data(),
          space.high.data(),
          space.nvec.size(),
          space.nvec.data()};
}

inline std::vector<const char*> ToC(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

inline void Give(Specs specs, SrlTakeSpecs take, void* taker) {
  const std::vector<const char*> agents = ToC(specs.agents);
  const std::vector<const char*> statistics = ToC(specs.statistics);
  std::vector<SrlField> fields;
  for (Field& field : specs.observation) fields.push_back({field.name.c_str(), ToC(field.space)});
  const SrlSpecs table = {sizeof(SrlSpecs),  agents.size(),     agents.data(),
                          fields.size(),     fields.data(),     ToC(specs.action),
                          statistics.size(), statistics.data(), specs.max_episode_steps};
  take(taker, &table);
}

// The random numbers of one call, which go on where they were after it, whatever it throws.
class BorrowedRandom {
 public:
  explicit BorrowedRandom(SrlRandom* lent) : random(*lent), lent_(lent) {}
  ~BorrowedRandom() { *lent_ = random.state(); }
  BorrowedRandom(const BorrowedRandom&) = delete;
  BorrowedRandom& operator=(const BorrowedRandom&) = delete;

  Random random;

 private:
  SrlRandom* lent_;
};

inline Environment* Self(void* environment) { return static_cast<Environment*>(environment); }
inline const Environment* Self(const void* environment) {
  return static_cast<const Environment*>(environment);
}

// The functions of an environment, for the table.
struct Functions {
  static void Destroy(void* environment) { delete Self(environment); }

  static int Reset(void* environment, SrlRandom* random, SrlError* error) {
    return Guard(error, [&] {
      BorrowedRandom borrowed(random);
      Self(environment)->Reset(borrowed.random);
    });
  }

  static int Step(void* environment, const void* action, SrlRandom* random, SrlError* error) {
    return Guard(error, [&] {
      BorrowedRandom borrowed(random);
      Self(environment)->Step(static_cast<const std::byte*>(action), borrowed.random);
    });
  }

  static int Write(const void* environment, const SrlRows* rows, SrlError* error) {
    return Guard(error, [&] {
      Self(environment)
          ->Write({reinterpret_cast<std::byte* const*>(rows->observation), rows->reward,
                   rows->terminated, rows->truncated, rows->statistics});
    });
  }

  static int Save(void* environment, SrlTakeBytes take, void* taker, SrlError* error) {
    return Guard(error, [&] {
      std::vector<std::byte> state;
      Archive archive(&state);
      Self(environment)->Serialize(archive);
      take(taker, state.data(), state.size());
    });
  }

  static int Load(void* environment, const void* data, std::size_t size, SrlError* error) {
    return Guard(error, [&] {
      Archive archive(std::span(static_cast<const std::byte*>(data), size));
      Self(environment)->Serialize(archive);
      if (archive.remaining() > 0) throw std::runtime_error("the saved state is too long");
    });
  }

  static int Inspect(const void* environment, SrlTakeNumbers take, void* taker, SrlError* error) {
    return Guard(error, [&] {
      for (const auto& [name, values] : Self(environment)->Inspect()) {
        take(taker, name.c_str(), values.data(), values.size());
      }
    });
  }

  static int Inject(void* environment, const char* name, const double* values, std::size_t count,
                    SrlError* error) {
    return Guard(error, [&] { Self(environment)->Inject(name, {values, values + count}); });
  }

  static int Model(const void* environment, SrlTakeBytes take, void* taker, SrlError* error) {
    return Guard(error, [&] {
      const std::vector<std::byte> model = Self(environment)->Model();
      take(taker, model.data(), model.size());
    });
  }
};

// One registered environment's table. `name` and `type` must outlive it.
struct Type : SrlEnvironmentType {
  Type(const std::string& name, const EnvironmentType& type)
      : SrlEnvironmentType{
            sizeof(SrlEnvironmentType), name.c_str(),      &Describe,           &Make,
            &Functions::Destroy,        &Functions::Reset, &Functions::Step,    &Functions::Write,
            &Functions::Save,           &Functions::Load,  &Functions::Inspect, &Functions::Inject,
            &Functions::Model},
        registered(type) {}

  static int Describe(const SrlEnvironmentType* type, const SrlOption* options, std::size_t count,
                      SrlTakeSpecs take, void* taker, SrlError* error) {
    return Guard(error, [&] {
      Give(static_cast<const Type*>(type)->registered.specs(ToOptions(options, count)), take,
           taker);
    });
  }

  static int Make(const SrlEnvironmentType* type, const SrlOption* options, std::size_t count,
                  void** environment, SrlError* error) {
    return Guard(error, [&] {
      *environment =
          static_cast<const Type*>(type)->registered.make(ToOptions(options, count)).release();
    });
  }

  const EnvironmentType& registered;
};

// All that the library registered.
class Plugin {
 public:
  Plugin() {
    for (const auto& [name, type] : Registry()) {
      types_.push_back(std::make_unique<Type>(name, type));
      pointers_.push_back(types_.back().get());
    }
    table_ = {SRL_PLUGIN_MAJOR, SRL_PLUGIN_MINOR, pointers_.size(), pointers_.data()};
  }

  const SrlPlugin* table() const { return &table_; }

 private:
  std::vector<std::unique_ptr<const Type>> types_;
  std::vector<const SrlEnvironmentType*> pointers_;
  SrlPlugin table_ = {};
};

}  // namespace srl::exported
