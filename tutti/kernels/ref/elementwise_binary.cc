// Two values at a time, with broadcasting: arithmetic, comparison, logic.
#include <cmath>
#include <concepts>
#include <string>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/ref/scalar.h"
#include "tutti/kernels/shape/broadcast.h"

namespace tutti {
namespace {

using ref::Bits;
using ref::Wrap;

template <typename C>
concept Floating = std::is_floating_point_v<C>;
template <typename C>
concept Integer = ref::kIsInteger<C>;
template <typename C>
concept Number = Floating<C> || Integer<C>;

// What a pair of values must not be, looked for before anything is computed.
enum class Forbidden { kNothing, kZeroDivisor, kNegativePower };

// "[1, 3]" for element `position` of a tensor of this shape.
std::string IndexOf(const Shape& shape, int64_t position) {
  std::string text;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    text = std::to_string(position % shape.dim(d)) + (text.empty() ? "" : ", " + text);
    position /= shape.dim(d);
  }
  return "[" + text + "]";
}

template <typename T>
absl::Status CheckIntegers(const Tensor& b, Forbidden forbidden) {
  const T* values = b.data<T>();
  for (int64_t i = 0; i < b.elements(); ++i) {
    if (forbidden == Forbidden::kZeroDivisor && values[i] == 0) {
      return InvalidArgument("integer division by zero: b{} is 0", IndexOf(b.shape(), i));
    }
    if (forbidden == Forbidden::kNegativePower && values[i] < T(0)) {
      return InvalidArgument(
          "negative power of an integer: b{} is {}; use Cast to a floating-point type first",
          IndexOf(b.shape(), i), values[i]);
    }
  }
  return absl::OkStatus();
}

template <typename F>
void AddBinary(KernelRegistry& registry, const char* op, F f,
               Forbidden forbidden = Forbidden::kNothing) {
  const auto compute = [f, forbidden](KernelContext& context) -> absl::Status {
    const Tensor& a = context.input(0);
    const Tensor& b = context.input(1);
    Tensor& y = context.output(0);
    if (y.elements() == 0) return absl::OkStatus();
    const Shape shapes[] = {a.shape(), b.shape()};
    const Broadcast broadcast(y.shape(), shapes);
    return VisitDType(a.dtype(), [&](auto tag) -> absl::Status {
      using T = typename decltype(tag)::type;
      using C = ref::Compute<T>;
      if constexpr (std::is_invocable_v<F, C, C>) {
        using R = std::conditional_t<std::is_same_v<std::invoke_result_t<F, C, C>, bool>, bool, T>;
        if constexpr (Integer<T>) {
          if (forbidden != Forbidden::kNothing) {
            TUTTI_RETURN_IF_ERROR(CheckIntegers<T>(b, forbidden));
          }
        }
        broadcast.ForEachRun(
            0, y.elements(), [&](int64_t position, int64_t count, const auto& offsets) {
              const T* pa = a.data<T>() + offsets[0];
              const T* pb = b.data<T>() + offsets[1];
              R* to = y.data<R>() + position;
              for (int64_t i = 0; i < count; ++i) {
                to[i] = R(f(C(pa[i * broadcast.step(0)]), C(pb[i * broadcast.step(1)])));
              }
            });
      }
      return absl::OkStatus();
    });
  };
  AddFunctionKernel(registry, op, "ref", compute, {}, {{0, 0}, {1, 0}});
}

// The smallest integer divided by -1 does not fit and would trap: it wraps around, as Neg does.
template <Integer C>
C Quotient(C a, C b) {
  if constexpr (std::is_signed_v<C>) {
    if (b == C(-1)) return Wrap<C>(uint64_t{0} - Bits(a));
  }
  return static_cast<C>(a / b);
}

template <Integer C>
C Remainder(C a, C b) {
  if constexpr (std::is_signed_v<C>) {
    if (b == C(-1)) return 0;
  }
  return static_cast<C>(a % b);
}

template <Number C>
C FloorDivide(C a, C b) {
  if constexpr (Floating<C>) {
    return std::floor(a / b);
  } else {
    const C quotient = Quotient(a, b);
    const bool rounded_up = Remainder(a, b) != 0 && (a < 0) != (b < 0);
    return rounded_up ? Wrap<C>(Bits(quotient) - 1) : quotient;
  }
}

template <Number C>
C Modulo(C a, C b) {
  if constexpr (Floating<C>) {
    const C rest = std::fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    const C rest = Remainder(a, b);
    return rest != 0 && (a < 0) != (b < 0) ? Wrap<C>(Bits(rest) + Bits(b)) : rest;
  }
}

template <Number C>
C Power(C a, C b) {
  if constexpr (Floating<C>) {
    return std::pow(a, b);
  } else {
    uint64_t result = 1;
    uint64_t base = Bits(a);
    for (uint64_t power = Bits(b); power != 0; power >>= 1, base *= base) {
      if ((power & 1) != 0) result *= base;
    }
    return Wrap<C>(result);
  }
}

}  // namespace

void RegisterElementwiseBinaryRefKernels(KernelRegistry& registry) {
  AddBinary(registry, "Add", []<Number C>(C a, C b) -> C {
    if constexpr (Floating<C>)
      return a + b;
    else
      return Wrap<C>(Bits(a) + Bits(b));
  });
  AddBinary(registry, "Sub", []<Number C>(C a, C b) -> C {
    if constexpr (Floating<C>)
      return a - b;
    else
      return Wrap<C>(Bits(a) - Bits(b));
  });
  AddBinary(registry, "Mul", []<Number C>(C a, C b) -> C {
    if constexpr (Floating<C>)
      return a * b;
    else
      return Wrap<C>(Bits(a) * Bits(b));
  });
  AddBinary(
      registry, "Div",
      []<Number C>(C a, C b) -> C {
        if constexpr (Floating<C>)
          return a / b;
        else
          return Quotient(a, b);
      },
      Forbidden::kZeroDivisor);
  AddBinary(
      registry, "FloorDiv", []<Number C>(C a, C b) -> C { return FloorDivide(a, b); },
      Forbidden::kZeroDivisor);
  AddBinary(
      registry, "Mod", []<Number C>(C a, C b) -> C { return Modulo(a, b); },
      Forbidden::kZeroDivisor);
  AddBinary(
      registry, "Pow", []<Number C>(C a, C b) -> C { return Power(a, b); },
      Forbidden::kNegativePower);
  AddBinary(registry, "Maximum", []<Number C>(C a, C b) -> C { return a != a || a > b ? a : b; });
  AddBinary(registry, "Minimum", []<Number C>(C a, C b) -> C { return a != a || a < b ? a : b; });
  AddBinary(registry, "SquaredDifference", []<Number C>(C a, C b) -> C {
    if constexpr (Floating<C>) {
      return (a - b) * (a - b);
    } else {
      const uint64_t difference = Bits(a) - Bits(b);
      return Wrap<C>(difference * difference);
    }
  });
  AddBinary(registry, "Greater", []<Number C>(C a, C b) -> bool { return a > b; });
  AddBinary(registry, "GreaterEqual", []<Number C>(C a, C b) -> bool { return a >= b; });
  AddBinary(registry, "Less", []<Number C>(C a, C b) -> bool { return a < b; });
  AddBinary(registry, "LessEqual", []<Number C>(C a, C b) -> bool { return a <= b; });
  AddBinary(registry, "Equal", []<typename C>(C a, C b) -> bool { return a == b; });
  AddBinary(registry, "NotEqual", []<typename C>(C a, C b) -> bool { return a != b; });
  AddBinary(registry, "LogicalAnd",
            [](std::same_as<bool> auto a, bool b) -> bool { return a && b; });
  AddBinary(registry, "LogicalOr",
            [](std::same_as<bool> auto a, bool b) -> bool { return a || b; });
}

}  // namespace tutti
