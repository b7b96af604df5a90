#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/kernels/from_double.h"
#include "tutti/kernels/random_kernels.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/indices.h"

namespace tutti {
namespace {

// A real number in [0, 1) with as many bits as T has: the result is never rounded up to 1.
template <typename T>
double Unit(const RandomStream& stream, uint64_t i) {
  if constexpr (std::is_same_v<T, double>) {
    return double(stream.DoubleWord(i) >> 11) * 0x1p-53;
  } else {
    constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, Float16> ? 11 : 8;
    return std::ldexp(double(stream.Word(i) >> (32 - kBits)), -kBits);
  }
}

// The largest T below hi.
template <typename T>
T Below(double hi) {
  T edge = FromDouble<T>(hi);
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    // The bits of neighbouring values differ by 1; of negative ones, the other way round.
    if (double(float(edge)) < hi) return edge;
    if (edge.bits == 0 || edge.bits == 0x8000) {
      edge.bits = 0x8001;
    } else {
      edge.bits = uint16_t(edge.bits + (edge.bits & 0x8000 ? 1 : -1));
    }
    return edge;
  } else {
    return double(edge) < hi ? edge : std::nextafter(edge, -std::numeric_limits<T>::infinity());
  }
}

template <typename T>
void UniformReals(const RandomStream& stream, double lo, double hi, Tensor& output) {
  using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Real low = Real(lo);
  const Real range = Real(hi - lo);
  const T below = Below<T>(hi);
  for (int64_t i = 0; i < output.elements(); ++i) {
    const T value = T(low + Real(Unit<T>(stream, uint64_t(i))) * range);
    output.data<T>()[i] = Real(value) < Real(below) ? value : below;
  }
}

// The upper half of a product: even to 2^-32 (2^-64) of the range.
void UniformInts(const RandomStream& stream, double lo, double hi, Tensor& output) {
  __extension__ typedef unsigned __int128 Wide;
  const auto low = int64_t(lo);
  const uint64_t range = hi >= 0x1p63 ? uint64_t{1} << 63 : uint64_t(int64_t(hi));
  const uint64_t span = range - uint64_t(low);
  for (int64_t i = 0; i < output.elements(); ++i) {
    if (output.dtype() == kInt32) {
      output.data<int32_t>()[i] =
          int32_t(low + int64_t((uint64_t{stream.Word(uint64_t(i))} * span) >> 32));
    } else {
      const Wide product = Wide{stream.DoubleWord(uint64_t(i))} * span;
      output.data<int64_t>()[i] = int64_t(uint64_t(low) + uint64_t(product >> 64));
    }
  }
}

// Box and Muller: two even numbers give two normal ones. The first is never 0.
template <typename T>
double Normal(const RandomStream& stream, uint64_t i) {
  double radius, angle;
  if constexpr (std::is_same_v<T, double>) {
    radius = (double(stream.DoubleWord(i & ~uint64_t{1}) >> 11) + 0.5) * 0x1p-53;
    angle = double(stream.DoubleWord(i | 1) >> 11) * 0x1p-53;
  } else {
    radius = (double(stream.Word(i & ~uint64_t{1})) + 0.5) * 0x1p-32;
    angle = double(stream.Word(i | 1) >> 8) * 0x1p-24;
  }
  const double r = std::sqrt(-2 * std::log(radius));
  const double a = 2 * std::numbers::pi * angle;
  return i % 2 == 0 ? r * std::cos(a) : r * std::sin(a);
}

// Newton's method on erf, from a start that is good to two digits within the truncated range.
double InverseErf(double u) {
  double y = u * (0.886226925452758 + 0.29 * u * u);
  for (int i = 0; i < 8; ++i) {
    y -= (std::erf(y) - u) * std::exp(y * y) * 0.886226925452758;
  }
  return y;
}

template <typename T>
double Truncated(const RandomStream& stream, uint64_t i) {
  double unit;
  if constexpr (std::is_same_v<T, double>) {
    unit = (double(stream.DoubleWord(i) >> 11) + 0.5) * 0x1p-53;
  } else {
    unit = (double(stream.Word(i)) + 0.5) * 0x1p-32;
  }
  return std::numbers::sqrt2 * InverseErf((2 * unit - 1) * kTruncatedEdge);
}

// Calls visitor with the floating type of `dtype`.
template <typename Visitor>
void VisitFloating(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case kFloat16:
      return visitor(std::type_identity<Float16>{});
    case kBFloat16:
      return visitor(std::type_identity<BFloat16>{});
    case kFloat64:
      return visitor(std::type_identity<double>{});
    default:
      return visitor(std::type_identity<float>{});
  }
}

absl::Status Dropout(KernelContext& context, const DynamicKernel& kernel) {
  const Tensor& x = context.input(0);
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, x.shape()));
  const DropoutPlan plan = PlanDropout(context);
  VisitFloating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = std::conditional_t<std::is_same_v<T, double>, double, float>;
    for (int64_t i = 0; i < x.elements(); ++i) {
      const bool keep = plan.stream.Word(plan.offset + uint64_t(i)) >= plan.threshold;
      context.output(0).data<T>()[i] =
          keep ? T(Real(x.data<T>()[i]) * Real(plan.scale)) : T(Real(0));
    }
  });
  return absl::OkStatus();
}

// Fisher and Yates: the last row changes places with a random one of all, the one before it with a
// random one of the rest, and so on. The order is drawn into scratch memory, then the rows are
// copied once.
class ShuffleKernel final : public DynamicKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Shape& x = context.input(0).shape;
    order_.resize(x.has_rank() && x.dim(0) > 0 ? size_t(x.dim(0)) : 0);
    return DynamicKernel::Prepare(context);
  }

  absl::Status Compute(KernelContext& context) override {
    const Tensor& x = context.input(0);
    TUTTI_RETURN_IF_ERROR(SetShape(context, 0, x.shape()));
    if (x.elements() == 0) return absl::OkStatus();
    const int64_t rows = x.shape().dim(0);
    Draw(StreamOf(context, context.num_inputs() > 1, 1), rows);
    const size_t row = x.bytes() / size_t(rows);
    const bool inverse = context.node->attr<bool>("inverse");
    const auto* const from = static_cast<const std::byte*>(x.raw());
    auto* const to = static_cast<std::byte*>(context.output(0).raw());
    const int64_t grain = int64_t((1 << 16) / row) + 1;
    context.team().ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t source = size_t(inverse ? i : order_[size_t(i)]);
        const size_t target = size_t(inverse ? order_[size_t(i)] : i);
        std::memcpy(to + target * row, from + source * row, row);
      }
    });
    return absl::OkStatus();
  }

 private:
  void Draw(const RandomStream& stream, int64_t rows) {
    __extension__ typedef unsigned __int128 Wide;
    order_.resize(size_t(rows));
    for (int64_t i = 0; i < rows; ++i) order_[size_t(i)] = i;
    for (int64_t i = rows - 1; i > 0; --i) {
      const Wide product = Wide{stream.DoubleWord(uint64_t(i))} * uint64_t(i + 1);
      std::swap(order_[size_t(i)], order_[size_t(product >> 64)]);
    }
  }

  std::vector<int64_t> order_;
};

template <void (*Function)(KernelContext&, const RandomStream&)>
absl::Status Random(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const RandomStream stream, StartRandom(context, kernel));
  Function(context, stream);
  return absl::OkStatus();
}

}  // namespace

RandomStream StreamOf(const KernelContext& context, bool has_step, int first) {
  const int64_t step = has_step ? *context.input(first).data<int64_t>() : context.step->random_step;
  return {context.node->attr<int64_t>("seed"), context.node->attr<int64_t>("node_seed"), step};
}

absl::StatusOr<RandomStream> StartRandom(KernelContext& context, const DynamicKernel& kernel) {
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeValue(context.input(0), "shape"));
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, shape));
  return StreamOf(context, context.num_inputs() > 1, 1);
}

DropoutPlan PlanDropout(const KernelContext& context) {
  const bool has_offset = context.node->attr<bool>("has_offset");
  const int extra = context.num_inputs() - 1;
  const double rate = context.node->attr<double>("rate");
  DropoutPlan plan{.stream = StreamOf(context, extra > (has_offset ? 1 : 0), 1)};
  if (has_offset) plan.offset = uint64_t(*context.input(extra).data<int64_t>());
  plan.threshold = uint32_t(std::min(std::round(rate * 0x1p32), 0x1p32 - 1));
  plan.scale = 1 / (1 - rate);
  return plan;
}

void RandomUniformRef(KernelContext& context, const RandomStream& stream) {
  const double lo = context.node->attr<double>("lo");
  const double hi = context.node->attr<double>("hi");
  Tensor& output = context.output(0);
  if (!IsFloating(output.dtype())) return UniformInts(stream, lo, hi, output);
  VisitFloating(output.dtype(), [&](auto tag) {
    UniformReals<typename decltype(tag)::type>(stream, lo, hi, output);
  });
}

void RandomNormalRef(KernelContext& context, const RandomStream& stream) {
  const double mean = context.node->attr<double>("mean");
  const double stddev = context.node->attr<double>("stddev");
  Tensor& output = context.output(0);
  VisitFloating(output.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < output.elements(); ++i) {
      output.data<T>()[i] = FromDouble<T>(mean + stddev * Normal<T>(stream, uint64_t(i)));
    }
  });
}

void TruncatedNormalRef(KernelContext& context, const RandomStream& stream) {
  const double mean = context.node->attr<double>("mean");
  const double stddev = context.node->attr<double>("stddev");
  Tensor& output = context.output(0);
  VisitFloating(output.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < output.elements(); ++i) {
      output.data<T>()[i] = FromDouble<T>(mean + stddev * Truncated<T>(stream, uint64_t(i)));
    }
  });
}

void RegisterRandomRefKernels(KernelRegistry& registry) {
  AddDynamicKernel(registry, "RandomUniform", "ref", Random<RandomUniformRef>);
  AddDynamicKernel(registry, "RandomNormal", "ref", Random<RandomNormalRef>);
  AddDynamicKernel(registry, "TruncatedNormal", "ref", Random<TruncatedNormalRef>);
  AddDynamicKernel(registry, "Dropout", "ref", Dropout, {}, {{0, 0}});
  AddKernel<ShuffleKernel>(registry, "Shuffle", "ref");
}

}  // namespace tutti
