// What is known of an environment: agents, spaces and statistics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace srl {

enum class DType : std::uint8_t { kBool, kUint8, kInt32, kInt64, kFloat32, kFloat64 };

inline std::size_t ByteSize(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
      return 1;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  throw std::logic_error("unknown dtype");
}

// A Gymnasium space that is one array: Box, Discrete or MultiDiscrete.
struct Space {
  enum class Kind : std::uint8_t { kBox, kDiscrete, kMultiDiscrete };

  Kind kind = Kind::kBox;
  DType dtype = DType::kFloat32;
  std::vector<int> shape;
  std::vector<double> low;   // Box: one number for all elements, or one for each
  std::vector<double> high;  // Box: likewise
  std::vector<int> nvec;     // Discrete: {n}; MultiDiscrete: one count for each element

  static Space Box(DType dtype, std::vector<int> shape, std::vector<double> low,
                   std::vector<double> high) {
    return {Kind::kBox, dtype, std::move(shape), std::move(low), std::move(high), {}};
  }
  static Space Discrete(int n) { return {Kind::kDiscrete, DType::kInt32, {}, {}, {}, {n}}; }
  static Space MultiDiscrete(std::vector<int> nvec) {
    const int size = static_cast<int>(nvec.size());
    return {Kind::kMultiDiscrete, DType::kInt32, {size}, {}, {}, std::move(nvec)};
  }

  std::size_t Elements() const {
    std::size_t count = 1;
    for (int size : shape) count *= static_cast<std::size_t>(size);
    return count;
  }
  std::size_t Bytes() const { return Elements() * ByteSize(dtype); }
};

// One named array of an observation. A single field named "" is a bare array, else a Dict.
struct Field {
  std::string name;
  Space space;
};

// All agents of an environment share the observation and the action space.
struct Specs {
  std::vector<std::string> agents;
  std::vector<Field> observation;
  Space action;
  std::vector<std::string> statistics;  // names of the numbers an environment keeps of an episode
  int max_episode_steps = 0;            // the pool truncates there; 0: no limit
};

}  // namespace srl
