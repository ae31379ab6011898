// Waiting without sleeping.
#pragma once

namespace srl {

// Looks for a few microseconds whether `done()`, and gives whether it was. A thread that waits
// longer should park: waking it costs tens of microseconds on a virtual machine.
template <typename Done>
bool SpinUntil(const Done& done) {
  constexpr int kSpins = 2'000;
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    __builtin_ia32_pause();
  }
  return false;
}

}  // namespace srl
