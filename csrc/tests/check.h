// The few lines of a test framework that the C++ tests need, so that nobody has to install one.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace srl::testing {

struct Test {
  const char* name;
  std::function<void()> body;
};

inline std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

struct Register {
  Register(const char* name, std::function<void()> body) {
    Tests().push_back({name, std::move(body)});
  }
};

// Runs every test; gives the number that failed.
inline int RunAll() {
  int failed = 0;
  for (const Test& test : Tests()) {
    try {
      test.body();
      std::printf("ok      %s\n", test.name);
    } catch (const std::exception& error) {
      ++failed;
      std::printf("FAILED  %s: %s\n", test.name, error.what());
    }
  }
  std::printf("%zu tests, %d failed\n", Tests().size(), failed);
  return failed;
}

}  // namespace srl::testing

// TEST(NameThatIsASentence) { ... CHECK(condition); ... }
#define TEST(name)                                                    \
  static void name();                                                 \
  static const ::srl::testing::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                                \
  do {                                                                                  \
    if (!(condition)) {                                                                 \
      throw std::runtime_error(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                               ": expected " #condition);                               \
    }                                                                                   \
  } while (false)
