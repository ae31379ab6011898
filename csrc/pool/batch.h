// Memory for the results of one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace srl {

// Memory for one batch of R environments with A agents each: where results are written. The
// memory belongs to the caller and must outlive its use by the pool.
struct Batch {
  std::vector<std::byte*> observation;     // for each field [R * A, ...]
  float* reward = nullptr;                 // [R * A]
  bool* terminated = nullptr;              // [R * A]
  bool* truncated = nullptr;               // [R * A]
  float* episode_return = nullptr;         // [R * A]
  std::int32_t* episode_length = nullptr;  // [R]
  float* statistics = nullptr;             // [R, S]
  std::int32_t* env_id = nullptr;          // [R]
};

}  // namespace srl
