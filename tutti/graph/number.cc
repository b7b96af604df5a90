#include "tutti/graph/number.h"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <limits>
#include <utility>

namespace tutti {
namespace {

template <typename T>
constexpr bool kIs16Bit = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// What a number of type T is computed with.
template <typename T>
auto Plain(T value) {
  if constexpr (kIs16Bit<T>) {
    return float(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return int(value);
  } else {
    return value;
  }
}

// Sets *to to the same number; false when there is none.
template <typename To, typename From>
bool Convert(From from, To* to) {
  if constexpr (std::is_same_v<To, bool>) {
    *to = from != From(0);
    return from == From(0) || from == From(1);
  } else if constexpr (kIs16Bit<To>) {
    float value = 0;
    if (!Convert(from, &value)) return false;
    *to = To(value);
    return std::isfinite(float(*to)) || !std::isfinite(value);
  } else if constexpr (std::floating_point<To> && std::floating_point<From>) {
    // Conversion of what is out of range is undefined, so the range is looked at first.
    const bool too_large =
        std::isfinite(from) && std::fabs(double(from)) > double(std::numeric_limits<To>::max());
    if (!too_large) *to = To(from);
    return !too_large;
  } else if constexpr (std::floating_point<To>) {
    *to = To(from);
    return true;
  } else if constexpr (std::floating_point<From>) {
    // lowest() is exact, and max() + 1 is a power of two, exact as well.
    const bool fits = from == std::trunc(from) &&
                      from >= static_cast<From>(std::numeric_limits<To>::lowest()) &&
                      from < std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (fits) *to = To(from);
    return fits;
  } else {
    *to = To(from);
    return std::in_range<To>(from);
  }
}

template <typename T>
std::string RangeOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return "0 and 1";
  } else if constexpr (std::is_same_v<T, Float16>) {
    return "magnitudes up to 65504";
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return "magnitudes up to 3.4e+38";
  } else if constexpr (std::floating_point<T>) {
    return fmt::format("magnitudes up to {:.2g}", std::numeric_limits<T>::max());
  } else {
    return fmt::format("whole numbers from {} to {}", std::numeric_limits<T>::lowest(),
                       std::numeric_limits<T>::max());
  }
}

}  // namespace

absl::StatusOr<Tensor> NumberAs(const Tensor& number, DType dtype) {
  Tensor result(dtype, Shape{});
  return VisitDType(number.dtype(), [&](auto from_tag) -> absl::StatusOr<Tensor> {
    const auto from = Plain(*number.data<typename decltype(from_tag)::type>());
    return VisitDType(dtype, [&](auto to_tag) -> absl::StatusOr<Tensor> {
      using To = typename decltype(to_tag)::type;
      if (Convert(from, result.data<To>())) return result;
      return InvalidArgument("the number {} cannot be {}, which holds {}", from, NameOf(dtype),
                             RangeOf<To>());
    });
  });
}

absl::StatusOr<Tensor> NumberAs(double number, DType dtype) {
  return NumberAs(Tensor::Scalar(number), dtype);
}

}  // namespace tutti
