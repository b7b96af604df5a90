// Reductions as plain loops: for each result, run over the elements it is made from. Floating-point
// sums are kept in double, so that the reference is the more exact one.
#include <cmath>
#include <limits>
#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/floating.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/reduce_dims.h"

namespace tutti {
namespace {

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsFloating = kIsHalf<T> || std::is_floating_point_v<T>;

// What elements are computed with: double for floating-point, unsigned (it wraps around without
// undefined behaviour) for integers.
template <typename T>
using Wide = std::conditional_t<kIsFloating<T>, double, uint64_t>;

template <typename T>
Wide<T> Widen(T value) {
  if constexpr (kIsHalf<T>) {
    return double(float(value));
  } else {
    return static_cast<Wide<T>>(value);
  }
}
template <typename T>
T Narrow(Wide<T> value) {
  if constexpr (kIsHalf<T>) {
    return T(float(value));
  } else {
    return static_cast<T>(value);
  }
}

// How the reduction reads an element: a half as float, everything else as it is.
template <typename T>
auto Comparable(T value) {
  if constexpr (kIsHalf<T>) {
    return float(value);
  } else {
    return value;
  }
}
template <typename T>
T FromComparable(decltype(Comparable(T())) value) {
  return T(value);
}

template <typename C>
bool IsNan(C value) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::isnan(value);
  } else {
    return false;
  }
}

// Each reduction: start, take one element, finish.
template <typename T>
struct SumOf {
  Wide<T> sum = 0;
  void Take(T value) { sum += Widen(value); }
  T Finish(int64_t) const { return Narrow<T>(sum); }
};

template <typename T>
struct MeanOf {
  double sum = 0;
  void Take(T value) { sum += double(Widen(value)); }
  T Finish(int64_t count) const { return Narrow<T>(Wide<T>(sum / double(count))); }
};

template <typename T>
struct ProdOf {
  Wide<T> product = 1;
  void Take(T value) { product *= Widen(value); }
  T Finish(int64_t) const { return Narrow<T>(product); }
};

template <typename T, bool kMax>
struct ExtremeOf {
  using C = decltype(Comparable(T()));
  static constexpr C Start() {
    using Limits = std::numeric_limits<C>;
    if constexpr (Limits::has_infinity) return kMax ? -Limits::infinity() : Limits::infinity();
    return kMax ? Limits::lowest() : Limits::max();
  }
  C extreme = Start();
  void Take(T value) {
    const C c = Comparable(value);
    if (IsNan(c) || (kMax ? c > extreme : c < extreme)) extreme = c;
  }
  T Finish(int64_t) const { return FromComparable<T>(extreme); }
};
template <typename T>
using MaxOf = ExtremeOf<T, true>;
template <typename T>
using MinOf = ExtremeOf<T, false>;

template <typename T>
struct AllOf {
  bool all = true;
  void Take(T value) { all = all && Widen(value) != 0; }
  T Finish(int64_t) const { return Narrow<T>(all ? 1 : 0); }
};
template <typename T>
struct AnyOf {
  bool any = false;
  void Take(T value) { any = any || Widen(value) != 0; }
  T Finish(int64_t) const { return Narrow<T>(any ? 1 : 0); }
};

// The sum is kept relative to the largest element so far, and rescaled when a larger one comes.
template <typename T>
struct LogSumExpOf {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  void Take(T given) {
    const double value = double(Widen(given));
    if (value == -std::numeric_limits<double>::infinity()) return;
    if (value > largest) {
      sum = sum * std::exp(largest - value) + 1;
      largest = value;
    } else {
      // An infinity met twice must not become inf - inf.
      sum += value == largest ? 1 : std::exp(value - largest);
    }
  }
  T Finish(int64_t) const { return Narrow<T>(Wide<T>(largest + std::log(sum))); }
};

template <template <typename> class Of>
void ReduceInto(const ReduceDims& dims, const Tensor& x, Tensor& y) {
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = x.data<T>();
    T* out = y.data<T>();
    DimsCounter kept(dims, false);
    DimsCounter reduced(dims, true);
    for (int64_t o = 0; o < dims.outputs; ++o, kept.Next()) {
      Of<T> reduction;
      for (int64_t i = 0; i < dims.elements; ++i, reduced.Next()) {
        reduction.Take(in[kept.offset() + reduced.offset()]);
      }
      out[o] = reduction.Finish(dims.elements);
    }
  });
}

template <template <typename> class Of>
absl::Status Reduce(KernelContext& c) {
  const auto& axes = c.node->attr<std::vector<int64_t>>("axes");
  ReduceInto<Of>(ReduceDims::OfAxes(c.input(0).shape(), axes), c.input(0), c.output(0));
  return absl::OkStatus();
}

absl::Status AllFinite(KernelContext& c) {
  const Tensor& x = c.input(0);
  bool finite = true;
  VisitFloating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T value : x.values<T>()) finite = finite && std::isfinite(Read(value));
  });
  *c.output(0).data<bool>() = finite;
  return absl::OkStatus();
}

template <bool kMax>
absl::Status ArgExtreme(KernelContext& c) {
  const Tensor& x = c.input(0);
  const int64_t axis = c.node->attr<int64_t>("axis");
  const ReduceDims dims = ReduceDims::OfAxes(x.shape(), std::span(&axis, 1));
  if (dims.elements == 0 && dims.outputs > 0)
    return InvalidArgument("x is {}: axis {} is empty and has no extreme element",
                           x.shape().ToString(), axis);
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DimsCounter kept(dims, false);
    DimsCounter reduced(dims, true);
    for (int64_t o = 0; o < dims.outputs; ++o, kept.Next()) {
      auto best = Comparable(x.data<T>()[kept.offset()]);
      int64_t where = 0;
      for (int64_t i = 0; i < dims.elements; ++i, reduced.Next()) {
        const auto value = Comparable(x.data<T>()[kept.offset() + reduced.offset()]);
        if (!IsNan(best) && (IsNan(value) || (kMax ? value > best : value < best))) {
          best = value;
          where = i;
        }
      }
      if (c.output(0).dtype() == kInt32) {
        c.output(0).data<int32_t>()[o] = int32_t(where);
      } else {
        c.output(0).data<int64_t>()[o] = where;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status Cumsum(KernelContext& c) {
  const Tensor& x = c.input(0);
  if (x.elements() == 0) return absl::OkStatus();
  const int64_t axis = c.node->attr<int64_t>("axis");
  const bool exclusive = c.node->attr<bool>("exclusive");
  const bool reverse = c.node->attr<bool>("reverse");
  const ReduceDims dims = ReduceDims::OfAxes(x.shape(), std::span(&axis, 1));
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DimsCounter kept(dims, false);
    DimsCounter along(dims, true);
    for (int64_t o = 0; o < dims.outputs; ++o, kept.Next()) {
      Wide<T> sum = 0;
      for (int64_t i = 0; i < dims.elements; ++i) {
        along.Seek(reverse ? dims.elements - 1 - i : i);
        const int64_t at = kept.offset() + along.offset();
        const Wide<T> value = Widen(x.data<T>()[at]);
        c.output(0).data<T>()[at] = Narrow<T>(exclusive ? sum : sum + value);
        sum += value;
      }
      along.Seek(0);
    }
  });
  return absl::OkStatus();
}

// The value of an integer vector as a shape.
absl::StatusOr<Shape> ShapeFrom(const Tensor& dims) {
  std::array<int64_t, kMaxRank> values{};
  const int64_t rank = dims.elements();
  if (rank > kMaxRank)
    return InvalidArgument("shape has {} elements; a tensor has at most {} dimensions", rank,
                           kMaxRank);
  for (int64_t i = 0; i < rank; ++i) {
    values[i] = dims.dtype() == kInt32 ? dims.data<int32_t>()[i] : dims.data<int64_t>()[i];
    if (values[i] < 0) return InvalidArgument("shape[{}] is {}; expected 0 or more", i, values[i]);
  }
  std::string why;
  const auto shape = Shape::Make(std::span(values).first(size_t(rank)), &why);
  if (!shape) return InvalidArgument("shape: {}", why);
  return *shape;
}

absl::Status MakeOutput(KernelContext& c, const Shape& shape) {
  if (c.output(0).valid() && c.output(0).shape() == shape) return absl::OkStatus();
  return c.AllocateOutput(0, shape);
}

absl::Status BroadcastTo(KernelContext& c) {
  const Tensor& x = c.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(1)));
  if (!BroadcastsTo(x.shape(), shape)) {
    return InvalidArgument("x is {} and cannot be broadcast to {}", x.shape().ToString(),
                           shape.ToString());
  }
  TUTTI_RETURN_IF_ERROR(MakeOutput(c, shape));
  Tensor& y = c.output(0);
  // Every element of x goes to all places that SumToShape would sum into it.
  const ReduceDims dims = ReduceDims::OfTarget(shape, x.shape());
  VisitDType(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    DimsCounter kept(dims, false);
    DimsCounter copies(dims, true);
    for (int64_t o = 0; o < dims.outputs; ++o, kept.Next()) {
      for (int64_t i = 0; i < dims.elements; ++i, copies.Next()) {
        y.data<T>()[kept.offset() + copies.offset()] = x.data<T>()[o];
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SumToShape(KernelContext& c) {
  const Tensor& x = c.input(0);
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ShapeFrom(c.input(1)));
  if (!BroadcastsTo(shape, x.shape())) {
    return InvalidArgument("x is {} and cannot be summed to {}", x.shape().ToString(),
                           shape.ToString());
  }
  TUTTI_RETURN_IF_ERROR(MakeOutput(c, shape));
  ReduceInto<SumOf>(ReduceDims::OfTarget(x.shape(), shape), x, c.output(0));
  return absl::OkStatus();
}

// A product of (x + e h) where e * e = 0: its e part is the derivative of the product in the
// direction h.
struct Dual {
  double value = 1;
  double slope = 0;
  void Times(double x, double h) {
    slope = slope * x + value * h;
    value *= x;
  }
};

// ExclusiveProd(x), and with a second input h its gradient. From the left the product before each
// element is kept, then from the right it is multiplied by the product after it. The products are
// those of x + e h, and the gradient is the e part of the result.
class ExclusiveProdKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const int64_t elements = context.input(0).shape.elements();
    if (elements > 0) context.SetScratchBytes(size_t(elements) * sizeof(Dual));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (c.input(0).elements() == 0) return absl::OkStatus();
    VisitFloating(c.input(0).dtype(), [&](auto tag) { Run<typename decltype(tag)::type>(c); });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void Run(KernelContext& c) {
    const Tensor& x = c.input(0);
    const T* h = c.num_inputs() == 2 ? c.input(1).data<T>() : nullptr;
    auto* before = reinterpret_cast<Dual*>(c.scratch().data());
    const ReduceDims dims =
        ReduceDims::OfAxes(x.shape(), c.node->attr<std::vector<int64_t>>("axes"));
    DimsCounter kept(dims, false);
    DimsCounter along(dims, true);
    const auto take = [&](Dual& product, int64_t at) {
      product.Times(Widen(x.data<T>()[at]), h == nullptr ? 0 : Widen(h[at]));
    };
    for (int64_t o = 0; o < dims.outputs; ++o, kept.Next()) {
      Dual left;
      for (int64_t i = 0; i < dims.elements; ++i, along.Next()) {
        before[i] = left;
        take(left, kept.offset() + along.offset());
      }
      Dual right;
      for (int64_t i = dims.elements - 1; i >= 0; --i) {
        along.Seek(i);
        const int64_t at = kept.offset() + along.offset();
        Dual others = before[i];
        others.Times(right.value, right.slope);
        c.output(0).data<T>()[at] = Narrow<T>(h == nullptr ? others.value : others.slope);
        take(right, at);
      }
      along.Seek(0);
    }
  }
};

}  // namespace

void RegisterReduceRefKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "Sum", "ref", Reduce<SumOf>);
  AddFunctionKernel(registry, "Mean", "ref", Reduce<MeanOf>);
  AddFunctionKernel(registry, "Prod", "ref", Reduce<ProdOf>);
  AddFunctionKernel(registry, "Max", "ref", Reduce<MaxOf>);
  AddFunctionKernel(registry, "Min", "ref", Reduce<MinOf>);
  AddFunctionKernel(registry, "All", "ref", Reduce<AllOf>);
  AddFunctionKernel(registry, "Any", "ref", Reduce<AnyOf>);
  AddFunctionKernel(registry, "AllFinite", "ref", AllFinite,
                    {kFloat16, kBFloat16, kFloat32, kFloat64});
  AddFunctionKernel(registry, "LogSumExp", "ref", Reduce<LogSumExpOf>);
  AddFunctionKernel(registry, "ArgMax", "ref", ArgExtreme<true>);
  AddFunctionKernel(registry, "ArgMin", "ref", ArgExtreme<false>);
  AddFunctionKernel(registry, "Cumsum", "ref", Cumsum, {}, {{0, 0}});
  AddFunctionKernel(registry, "BroadcastTo", "ref", BroadcastTo);
  AddFunctionKernel(registry, "SumToShape", "ref", SumToShape);
  for (const char* op : {"ExclusiveProd", "ExclusiveProdGrad"}) {
    AddKernel<ExclusiveProdKernel>(registry, op, "ref", {kFloat16, kBFloat16, kFloat32, kFloat64});
  }
}

}  // namespace tutti
