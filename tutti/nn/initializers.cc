#include "tutti/nn/initializers.h"

#include <fmt/format.h>

#include <cmath>

#include "tutti/base/status.h"
#include "tutti/graph/number.h"
#include "tutti/graph/ops/random.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/nn/seed.h"

namespace tutti {
namespace {

// Truncation at two stddev leaves this share of the stddev.
constexpr double kTruncatedStddev = 0.87962566103423978;

void RequireKnown(const char* what, const Shape& shape, DType dtype) {
  if (!shape.IsFullyKnown()) {
    ThrowInvalidArgument(fmt::format(
        "{}: the shape is {}; a variable's dimensions must all be known", what, shape.ToString()));
  }
  if (dtype == DType::kInvalid) ThrowInvalidArgument(fmt::format("{}: the dtype is invalid", what));
}

// `value` in that dtype; throws when it cannot hold it.
Tensor ScalarOf(const char* what, double value, DType dtype) {
  auto scalar = NumberAs(value, dtype);
  if (!scalar.ok()) ThrowIfError(WithPrefix(scalar.status(), fmt::format("{}: ", what)));
  return *std::move(scalar);
}

// An initialiser runs once and must not depend on how many runs came before it.
RandomSeed SeedIn(Graph& graph) {
  return {.seed = SeedOf(graph), .step = Constant(graph, int64_t{0})};
}

struct Fans {
  double in = 1;
  double out = 1;
};

Fans FansOf(const Shape& shape) {
  Fans fans;
  const auto dims = shape.dims();
  if (dims.empty()) return fans;
  double field = 1;
  for (size_t i = 0; i + 2 < dims.size(); ++i) field *= double(dims[i]);
  fans.out = field * double(dims.back());
  fans.in = dims.size() == 1 ? fans.out : field * double(dims[dims.size() - 2]);
  return {std::max(fans.in, 1.0), std::max(fans.out, 1.0)};
}

}  // namespace

Initializer Full(const Shape& shape, double value, DType dtype) {
  RequireKnown("Full", shape, dtype);
  const Tensor scalar = ScalarOf("Full", value, dtype);
  return {dtype, shape, [=](Graph& graph) {
            const Output dims = Constant(graph, Tensor::Of<int64_t>({shape.rank()}, shape.dims()));
            return Fill(dims, Constant(graph, scalar));
          }};
}
Initializer Zeros(const Shape& shape, DType dtype) { return Full(shape, 0, dtype); }
Initializer Ones(const Shape& shape, DType dtype) { return Full(shape, 1, dtype); }

Initializer Value(Tensor value) {
  if (!value.valid()) ThrowInvalidArgument("Value: the tensor is invalid");
  return {value.dtype(), value.shape(), [value](Graph& graph) { return Constant(graph, value); }};
}

Initializer RandomUniform(const Shape& shape, double lo, double hi, DType dtype) {
  RequireKnown("RandomUniform", shape, dtype);
  return {dtype, shape, [=](Graph& graph) {
            return RandomUniform(graph, shape,
                                 {.dtype = dtype, .lo = lo, .hi = hi, .random = SeedIn(graph)});
          }};
}

Initializer RandomNormal(const Shape& shape, double mean, double stddev, DType dtype) {
  RequireKnown("RandomNormal", shape, dtype);
  return {dtype, shape, [=](Graph& graph) {
            return RandomNormal(
                graph, shape,
                {.dtype = dtype, .mean = mean, .stddev = stddev, .random = SeedIn(graph)});
          }};
}

Initializer TruncatedNormal(const Shape& shape, double mean, double stddev, DType dtype) {
  RequireKnown("TruncatedNormal", shape, dtype);
  return {dtype, shape, [=](Graph& graph) {
            return TruncatedNormal(
                graph, shape,
                {.dtype = dtype, .mean = mean, .stddev = stddev, .random = SeedIn(graph)});
          }};
}

Initializer GlorotUniform(const Shape& shape, DType dtype) {
  RequireKnown("GlorotUniform", shape, dtype);
  const Fans fans = FansOf(shape);
  const double limit = std::sqrt(6 / (fans.in + fans.out));
  return RandomUniform(shape, -limit, limit, dtype);
}

Initializer HeNormal(const Shape& shape, DType dtype) {
  RequireKnown("HeNormal", shape, dtype);
  return TruncatedNormal(shape, 0, std::sqrt(2 / FansOf(shape).in) / kTruncatedStddev, dtype);
}

}  // namespace tutti
