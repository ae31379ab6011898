#include "xla/attention.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <utility>

#define INLINED __attribute__((always_inline)) inline

namespace srl::attention {
namespace {

template <int lanes>
struct Vectors;

#define SRL_VECTORS(lanes)                                                            \
  template <>                                                                         \
  struct Vectors<lanes> {                                                             \
    typedef float Floats __attribute__((vector_size(4 * lanes), may_alias));          \
    typedef std::int32_t Integers __attribute__((vector_size(4 * lanes), may_alias)); \
  }

SRL_VECTORS(4);
SRL_VECTORS(8);
SRL_VECTORS(16);

// The computation with vectors that hold one number of each of `lanes` rows, since the sizes of one
// row, such as 7 entities, are too small and odd for vectors. The bits are the same for any lanes,
// as all is compiled with -ffp-contract=off.
template <int lanes>
class Kernel {
 public:
  // The outputs and weights of rows from `first` up to `last`.
  INLINED static void Attend(const Sizes& s, Index first, Index last, const Arrays& arrays) {
    const Index entities = s.entities, size = s.width / s.heads;
    Vector* const in = Memory(s.inputs() + s.outputs() + s.weights() + entities);
    Vector *const out = in + s.inputs(), *const weights = out + s.outputs();
    Integers* const mask = reinterpret_cast<Integers*>(weights + s.weights());
    for (Index row = first; row < last; row += lanes) {
      const Index rows = std::min<Index>(lanes, last - row);
      ToLanes(arrays.inputs + row * s.inputs(), rows, s.inputs(), in);
      ToLanes(arrays.mask + row * entities, rows, entities, mask);
      for (Index head = 0; head < s.heads; ++head) {
        const Matrix weight{weights + head * entities * entities, entities, 1};
        const Matrix result{out + head * size, s.width, 1};
        Multiply(Part(s, in, 0, head), Part(s, in, 1, head).Transposed(), weight, entities, size,
                 entities);
        Softmax(weight, mask, entities, Scale(size));
        Multiply(weight, Part(s, in, 2, head), result, entities, entities, size);
      }
      FromLanes(out, rows, s.outputs(), arrays.outputs + row * s.outputs());
      FromLanes(weights, rows, s.weights(), arrays.weights + row * s.weights());
    }
  }

  // The derivatives by the inputs, from those by the outputs.
  INLINED static void Differentiate(const Sizes& s, Index first, Index last, const Arrays& arrays) {
    const Index entities = s.entities, size = s.width / s.heads, pairs = entities * entities;
    Vector* const in = Memory(2 * s.inputs() + s.outputs() + s.weights() + pairs + entities);
    Vector *const out = in + s.inputs(), *const given = out + s.inputs();
    Vector *const weights = given + s.outputs(), *const changes = weights + s.weights();
    Integers* const mask = reinterpret_cast<Integers*>(changes + pairs);
    for (Index row = first; row < last; row += lanes) {
      const Index rows = std::min<Index>(lanes, last - row);
      ToLanes(arrays.inputs + row * s.inputs(), rows, s.inputs(), in);
      ToLanes(arrays.output_gradients + row * s.outputs(), rows, s.outputs(), given);
      ToLanes(arrays.weights + row * s.weights(), rows, s.weights(), weights);
      ToLanes(arrays.mask + row * entities, rows, entities, mask);
      for (Index head = 0; head < s.heads; ++head) {
        const Matrix weight{weights + head * pairs, entities, 1}, change{changes, entities, 1};
        const Matrix gradient{given + head * size, s.width, 1};
        const Matrix queries = Part(s, in, 0, head), keys = Part(s, in, 1, head);
        const Matrix values = Part(s, in, 2, head);
        Multiply(weight.Transposed(), gradient, Part(s, out, 2, head), entities, entities, size);
        Multiply(gradient, values.Transposed(), change, entities, size, entities);
        SoftmaxGradient(weight, change, mask, entities, Scale(size));
        Multiply(change, keys, Part(s, out, 0, head), entities, entities, size);
        Multiply(change.Transposed(), queries, Part(s, out, 1, head), entities, entities, size);
      }
      FromLanes(out, rows, s.inputs(), arrays.input_gradients + row * s.inputs());
    }
  }

 private:
  using Vector = typename Vectors<lanes>::Floats;
  using Integers = typename Vectors<lanes>::Integers;

  // A matrix in each of the rows, by the distances between its numbers.
  struct Matrix {
    Vector* data;
    Index down, right;

    INLINED Vector& At(Index i, Index j) const { return data[i * down + j * right]; }
    INLINED Matrix Transposed() const { return {data, right, down}; }
  };

  INLINED static float Scale(Index size) { return 1.f / std::sqrt(static_cast<float>(size)); }

  // A head's queries (part 0), keys (1) or values (2): [entities, size].
  INLINED static Matrix Part(const Sizes& s, Vector* inputs, int part, Index head) {
    return {inputs + part * s.width + head * (s.width / s.heads), 3 * s.width, 1};
  }

  // Memory of this thread for `count` vectors.
  static Vector* Memory(Index count) {
    struct alignas(sizeof(Vector)) Numbers {
      float values[lanes];
    };
    static thread_local std::vector<Numbers> memory;
    if (static_cast<Index>(memory.size()) < count) memory.resize(count);
    return reinterpret_cast<Vector*>(memory.data());
  }

  // out [rows, columns] = a [rows, inner] b [inner, columns].
  INLINED static void Multiply(Matrix a, Matrix b, Matrix out, Index rows, Index inner,
                               Index columns) {
    for (Index i = 0; i < rows; ++i) {
      Index j = 0;
      for (; j + 4 <= columns; j += 4) Columns<4>(a, b, out, i, j, inner);
      for (; j < columns; ++j) Columns<1>(a, b, out, i, j, inner);
    }
  }

  // `count` columns from j on of row i of the product.
  template <int count>
  INLINED static void Columns(Matrix a, Matrix b, Matrix out, Index i, Index j, Index inner) {
    Vector sums[count] = {};
    for (Index k = 0; k < inner; ++k) {
      const Vector factor = a.At(i, k);
      for (int c = 0; c < count; ++c) sums[c] += factor * b.At(k, j + c);
    }
    for (int c = 0; c < count; ++c) out.At(i, j + c) = sums[c];
  }

  // The softmax of each row of scores times `scale`, in place. Masked scores are the least number,
  // so that entities that are masked all have equal weights.
  INLINED static void Softmax(Matrix scores, const Integers* mask, Index entities, float scale) {
    const Vector least = Vector{} - FLT_MAX;
    for (Index i = 0; i < entities; ++i) {
      Vector largest = least, sum = {};
      for (Index j = 0; j < entities; ++j) {
        Vector& score = scores.At(i, j);
        score = mask[j] != 0 ? score * scale : least;
        largest = score > largest ? score : largest;
      }
      for (Index j = 0; j < entities; ++j) {
        Vector& score = scores.At(i, j);
        score = Exp(score - largest);
        sum += score;
      }
      for (Index j = 0; j < entities; ++j) scores.At(i, j) /= sum;
    }
  }

  // From derivatives by the weights to those by the scores, in place. Masked scores have none.
  INLINED static void SoftmaxGradient(Matrix weights, Matrix gradient, const Integers* mask,
                                      Index entities, float scale) {
    for (Index i = 0; i < entities; ++i) {
      Vector mean = {};
      for (Index j = 0; j < entities; ++j) mean += weights.At(i, j) * gradient.At(i, j);
      for (Index j = 0; j < entities; ++j) {
        const Vector change = weights.At(i, j) * (gradient.At(i, j) - mean) * scale;
        gradient.At(i, j) = mask[j] != 0 ? change : Vector{};
      }
    }
  }

  // e^x for x <= 0, to a relative error of 2e-7, and 0 below -87. NaN stays NaN.
  INLINED static Vector Exp(Vector x) {
    const Vector shift = Vector{} + 12582912.f;  // 1.5 * 2^23: floats above it have no fraction
    const Vector shifted = x * 1.44269504f + shift, power = shifted - shift;
    // ln(2) as a sum of two numbers, the first of few bits, so that its product is exact.
    const Vector rest = (x - power * 0.693359375f) + power * 2.12194440e-4f;
    // The polynomial of Cephes (S. L. Moshier): e^rest = 1 + rest + rest^2 p(rest).
    Vector p = Vector{} + 1.9875691500e-4f;
    p = p * rest + 1.3981999507e-3f;
    p = p * rest + 8.3334519073e-3f;
    p = p * rest + 4.1665795894e-2f;
    p = p * rest + 1.6666665459e-1f;
    p = p * rest + 5.0000001201e-1f;
    p = p * (rest * rest) + rest + 1.f;
    const Integers exponent = (Integers)shifted - (Integers)shift + 127;
    return x < -87.f ? Vector{} : p * (Vector)(exponent << 23);
  }

  // Puts `count` numbers of each of `rows` rows into lanes; those of missing rows are 0.
  INLINED static void ToLanes(const float* from, Index rows, Index count, Vector* to) {
    Index i = 0;
    for (; i + lanes <= count; i += lanes) {
      Vector x[lanes] = {};
      for (Index row = 0; row < rows; ++row) {
        std::memcpy(&x[row], from + row * count + i, sizeof(Vector));
      }
      Transpose(x);
      std::copy_n(x, lanes, to + i);
    }
    for (; i < count; ++i) {
      for (Index row = 0; row < lanes; ++row) {
        to[i][row] = row < rows ? from[row * count + i] : 0.f;
      }
    }
  }

  INLINED static void ToLanes(const bool* from, Index rows, Index count, Integers* to) {
    for (Index i = 0; i < count; ++i) {
      for (Index row = 0; row < lanes; ++row) to[i][row] = row < rows && from[row * count + i];
    }
  }

  INLINED static void FromLanes(const Vector* from, Index rows, Index count, float* to) {
    Index i = 0;
    for (; i + lanes <= count; i += lanes) {
      Vector x[lanes];
      std::copy_n(from + i, lanes, x);
      Transpose(x);
      for (Index row = 0; row < rows; ++row) {
        std::memcpy(to + row * count + i, &x[row], sizeof(Vector));
      }
    }
    for (; i < count; ++i) {
      for (Index row = 0; row < rows; ++row) to[row * count + i] = from[i][row];
    }
  }

  // Transposes in steps, each of which moves the first bit of a number's place to the end.
  INLINED static void Transpose(Vector (&x)[lanes]) {
#pragma GCC unroll 4
    for (int size = lanes; size > 1; size /= 2) {
      Vector y[lanes];
#pragma GCC unroll 8
      for (int i = 0; i < lanes / 2; ++i) {
        const Vector a = x[i], b = x[i + lanes / 2];
        y[2 * i] = Alternate<0>(a, b, std::make_integer_sequence<int, lanes>());
        y[2 * i + 1] = Alternate<lanes / 2>(a, b, std::make_integer_sequence<int, lanes>());
      }
      std::copy_n(y, lanes, x);
    }
  }

  // The numbers of two vectors in turns, from a place on.
  template <int first, int... i>
  INLINED static Vector Alternate(Vector a, Vector b, std::integer_sequence<int, i...>) {
#if defined(__clang__)
    return __builtin_shufflevector(a, b, (first + i / 2 + i % 2 * lanes)...);
#else
    return __builtin_shuffle(a, b, Integers{(first + i / 2 + i % 2 * lanes)...});
#endif
  }
};

// Compiled for the vectors of several processors.
template <int lanes>
INLINED void Run(const Sizes& sizes, Index first, Index last, const Arrays& arrays) {
  if (arrays.output_gradients) {
    Kernel<lanes>::Differentiate(sizes, first, last, arrays);
  } else {
    Kernel<lanes>::Attend(sizes, first, last, arrays);
  }
}

void RunAnywhere(const Sizes& sizes, Index first, Index last, const Arrays& arrays) {
  Run<4>(sizes, first, last, arrays);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void RunWithAvx2(const Sizes& sizes, Index first, Index last,
                                                 const Arrays& arrays) {
  Run<8>(sizes, first, last, arrays);
}

__attribute__((target("avx512f"))) void RunWithAvx512(const Sizes& sizes, Index first, Index last,
                                                      const Arrays& arrays) {
  Run<16>(sizes, first, last, arrays);
}
#endif

std::vector<Work> Supported() {
  std::vector<Work> works;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) works.push_back(RunWithAvx512);
  if (__builtin_cpu_supports("avx2")) works.push_back(RunWithAvx2);
#endif
  works.push_back(RunAnywhere);
  return works;
}

}  // namespace

const std::vector<Work>& Works() {
  static const std::vector<Work> works = Supported();
  return works;
}

}  // namespace srl::attention
