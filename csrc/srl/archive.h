// Saving and restoring an environment's whole state by one function for both directions.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace srl {

// Writes values to a byte string, or reads them back in the same order. An environment lists its
// state once, in `Serialize(Archive&)`, and both directions follow from it. Throws
// std::runtime_error when the bytes end too early, or one that stands for a bool is neither 0
// nor 1.
class Archive {
 public:
  // Writing: appends to `output`, which must outlive the archive.
  explicit Archive(std::vector<std::byte>* output) : output_(output) {}
  // Reading: consumes `input`, which must outlive the archive.
  explicit Archive(std::span<const std::byte> input) : input_(input) {}

  bool reading() const { return output_ == nullptr; }
  std::size_t remaining() const { return input_.size(); }

  template <typename T>
  void Value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if constexpr (std::is_same_v<T, bool>) {
      unsigned char byte = value ? 1 : 0;  // any other byte would be no bool
      Bytes(&byte, 1);
      if (byte > 1) throw std::runtime_error("the saved environment state is damaged");
      value = byte == 1;
    } else {
      Bytes(&value, sizeof(T));
    }
  }

  template <typename T>
  void Vector(std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::size_t size = values.size();
    Value(size);
    if (reading()) {
      if (size > input_.size() / sizeof(T)) throw std::runtime_error(kTooShort);
      values.resize(size);
    }
    Bytes(values.data(), size * sizeof(T));
  }

  void Bytes(void* data, std::size_t size) {
    if (size == 0) return;
    if (!reading()) {
      const auto* bytes = static_cast<const std::byte*>(data);
      output_->insert(output_->end(), bytes, bytes + size);
      return;
    }
    if (size > input_.size()) throw std::runtime_error(kTooShort);
    std::memcpy(data, input_.data(), size);
    input_ = input_.subspan(size);
  }

 private:
  static constexpr const char* kTooShort = "the saved environment state ends too early";

  std::vector<std::byte>* output_ = nullptr;
  std::span<const std::byte> input_;
};

}  // namespace srl
