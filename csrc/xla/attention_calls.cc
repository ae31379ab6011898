#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>

#include "xla/attention.h"
#include "xla/calls.h"
#include "xla/ffi/api/ffi.h"

namespace srl {
namespace {

namespace ffi = xla::ffi;
using attention::Arrays;
using attention::Index;
using attention::Sizes;
using Floats = ffi::Buffer<ffi::F32>;
using Flags = ffi::Buffer<ffi::PRED>;
using FloatResult = ffi::ResultBuffer<ffi::F32>;

// Computes all rows, on XLA's threads too. Nobody waits for a thread that has not begun: a task
// that comes late finds no part left.
void RunAll(ffi::ThreadPool& threads, const Sizes& sizes, const Arrays& arrays) {
  const attention::Work work = attention::Works().front();
  constexpr Index kPart = 128;
  const Index parts = (sizes.rows + kPart - 1) / kPart;
  const Index helpers = std::min<Index>(threads.num_threads(), parts) - 1;
  if (helpers <= 0) return work(sizes, 0, sizes.rows, arrays);
  struct Progress {
    std::atomic<Index> next = 0, done = 0;
  };
  const auto progress = std::make_shared<Progress>();
  const auto help = [progress, parts, sizes, arrays, work] {
    for (Index part; (part = progress->next++) < parts;) {
      work(sizes, part * kPart, std::min(sizes.rows, (part + 1) * kPart), arrays);
      if (++progress->done == parts) progress->done.notify_all();
    }
  };
  for (Index i = 0; i < helpers; ++i) threads.Schedule(std::function<void()>(help));
  help();
  for (Index done; (done = progress->done) < parts;) progress->done.wait(done);
}

ffi::Error Refusal(const char* reason) { return ffi::Error::InvalidArgument(reason); }

// The sizes of inputs [..., entities, 3 * width] with a mask [..., entities].
ffi::ErrorOr<Sizes> SizesOf(const Floats& inputs, const Flags& mask, Index heads) {
  const auto shape = inputs.dimensions();
  if (shape.size() < 2) return ffi::Unexpected(Refusal("attention needs two axes"));
  Sizes sizes{0, shape[shape.size() - 2], shape.back() / 3, heads};
  if (heads < 1 || sizes.width % heads || 3 * sizes.width != shape.back()) {
    return ffi::Unexpected(Refusal("attention's heads do not divide its width"));
  }
  if (sizes.inputs() > 0) sizes.rows = static_cast<Index>(inputs.element_count()) / sizes.inputs();
  if (static_cast<Index>(mask.element_count()) != sizes.rows * sizes.entities) {
    return ffi::Unexpected(Refusal("attention's mask has another shape than its inputs"));
  }
  return sizes;
}

bool Fits(const auto& buffer, const Sizes& sizes, Index numbers) {
  return static_cast<Index>(buffer.element_count()) == sizes.rows * numbers;
}

ffi::Error Attention(ffi::ThreadPool threads, Floats inputs, Flags mask, FloatResult outputs,
                     FloatResult weights, Index heads) {
  const auto sizes = SizesOf(inputs, mask, heads);
  if (!sizes) return sizes.error();
  if (!Fits(*outputs, *sizes, sizes->outputs()) || !Fits(*weights, *sizes, sizes->weights())) {
    return Refusal("a result of attention has another shape than its inputs");
  }
  RunAll(threads, *sizes,
         {inputs.typed_data(), mask.typed_data(), outputs->typed_data(), weights->typed_data(),
          nullptr, nullptr});
  return ffi::Error::Success();
}

ffi::Error AttentionGradient(ffi::ThreadPool threads, Floats inputs, Flags mask, Floats weights,
                             Floats gradients, FloatResult results, Index heads) {
  const auto sizes = SizesOf(inputs, mask, heads);
  if (!sizes) return sizes.error();
  if (!Fits(weights, *sizes, sizes->weights()) || !Fits(gradients, *sizes, sizes->outputs()) ||
      !Fits(*results, *sizes, sizes->inputs())) {
    return Refusal("an array of attention's gradient has another shape than its inputs");
  }
  RunAll(threads, *sizes,
         {inputs.typed_data(), mask.typed_data(), nullptr, weights.typed_data(),
          gradients.typed_data(), results->typed_data()});
  return ffi::Error::Success();
}

// What both calls begin with.
auto Bind() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Arg<Flags>(); }

XLA_FFI_DEFINE_HANDLER(kAttention, Attention,
                       Bind().Ret<Floats>().Ret<Floats>().Attr<Index>("heads"));
XLA_FFI_DEFINE_HANDLER(kAttentionGradient, AttentionGradient,
                       Bind().Arg<Floats>().Arg<Floats>().Ret<Floats>().Attr<Index>("heads"));

}  // namespace

std::span<const XlaCall> AttentionCalls() {
  static const XlaCall calls[] = {
      {"srl_attention", reinterpret_cast<void*>(kAttention)},
      {"srl_attention_gradient", reinterpret_cast<void*>(kAttentionGradient)},
  };
  return calls;
}

}  // namespace srl
