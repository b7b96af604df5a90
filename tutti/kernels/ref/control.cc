#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"

namespace tutti {
namespace {

std::string IndexText(const Shape& shape, int64_t flat) {
  std::string text;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    text = fmt::format("{}{}{}", flat % shape.dim(i), text.empty() ? "" : ", ", text);
    flat /= shape.dim(i);
  }
  return "[" + text + "]";
}

// A message of the user's in front of what follows.
std::string Prefixed(const Node& node) {
  const std::string& message = node.attr<std::string>("message");
  return message.empty() ? "" : message + ": ";
}

void PassOn(KernelContext& c) {
  const Tensor& x = c.input(0);
  if (c.output(0).raw() != x.raw()) std::memcpy(c.output(0).raw(), x.raw(), x.bytes());
}

absl::Status RunAssert(KernelContext& c) {
  const Tensor& condition = c.input(0);
  for (int64_t i = 0; i < condition.elements(); ++i) {
    if (condition.data<bool>()[i]) continue;
    std::string text = Prefixed(*c.node) + "the condition is false";
    if (condition.shape().rank() > 0) text += " at " + IndexText(condition.shape(), i);
    for (int k = 1; k < c.num_inputs(); ++k) {
      text += fmt::format("; {} = {}", c.node->input(k).name(), c.input(k).ToString());
    }
    return absl::InvalidArgumentError(text);
  }
  return absl::OkStatus();
}

absl::Status RunCheckNumerics(KernelContext& c) {
  const Tensor& x = c.input(0);
  const absl::Status status = VisitDType(x.dtype(), [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < x.elements(); ++i) {
      double value = 0;
      if constexpr (std::is_same_v<T, double>) {
        value = x.data<T>()[i];
      } else {
        value = static_cast<double>(static_cast<float>(x.data<T>()[i]));
      }
      if (std::isfinite(value)) continue;
      return InvalidArgument("{}element {} of {} {} is {}", Prefixed(*c.node),
                             IndexText(x.shape(), i), NameOf(x.dtype()), x.shape().ToString(),
                             std::isnan(value) ? "NaN"
                             : value > 0       ? "Inf"
                                               : "-Inf");
    }
    return absl::OkStatus();
  });
  if (status.ok()) PassOn(c);
  return status;
}

absl::Status RunPrint(KernelContext& c) {
  const std::string text = fmt::format("{}{}\n", Prefixed(*c.node),
                                       c.input(0).ToString(c.node->attr<int64_t>("most_values")));
  std::fputs(text.c_str(), stderr);
  PassOn(c);
  return absl::OkStatus();
}

}  // namespace

void RegisterControlRefKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "NoOp", "ref", [](KernelContext&) { return absl::OkStatus(); });
  AddFunctionKernel(registry, "Assert", "ref", RunAssert);
  AddFunctionKernel(registry, "CheckNumerics", "ref", RunCheckNumerics,
                    {kFloat16, kBFloat16, kFloat32, kFloat64}, {{0, 0}});
  AddFunctionKernel(registry, "Print", "ref", RunPrint, {}, {{0, 0}});
}

}  // namespace tutti
