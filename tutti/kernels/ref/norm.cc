// Normalisation in double, group by group. Layer and batch normalisation differ only in which
// elements share a mean: those of a row, or those of a channel. A Groups tells where they lie.
#include <cmath>
#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/floating.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/labels.h"

namespace tutti {
namespace {

// Element i of group g stands at position Index(g, i) and belongs to channel Channel(g, i).
struct Groups {
  Groups(const Shape& shape, bool group_by_row) : by_row(group_by_row) {
    const RowsAndClasses size(shape);
    channels = size.classes;
    count = by_row ? size.rows : size.classes;
    elements = by_row ? size.classes : size.rows;
  }
  int64_t Index(int64_t g, int64_t i) const { return by_row ? g * channels + i : i * channels + g; }
  int64_t Channel(int64_t g, int64_t i) const { return by_row ? i : g; }

  bool by_row;
  int64_t channels;
  int64_t count;     // of groups
  int64_t elements;  // in each
};

// Outputs y, mean, then variance (BatchNorm only), then rstd.
template <bool kByRow>
absl::Status Normalize(KernelContext& c) {
  const Groups groups(c.input(0).shape(), kByRow);
  const double epsilon = c.node->attr<double>("epsilon");
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = c.input(0).data<T>();
    const T* scale = c.input(1).data<T>();
    const T* offset = c.input(2).data<T>();
    for (int64_t g = 0; g < groups.count; ++g) {
      double mean = 0;
      double variance = 0;
      const double number = groups.elements > 0 ? double(groups.elements) : 1;
      for (int64_t i = 0; i < groups.elements; ++i) mean += Read(x[groups.Index(g, i)]) / number;
      for (int64_t i = 0; i < groups.elements; ++i) {
        const double centred = Read(x[groups.Index(g, i)]) - mean;
        variance += centred * centred / number;
      }
      const double rstd = 1 / std::sqrt(variance + epsilon);
      for (int64_t i = 0; i < groups.elements; ++i) {
        const int64_t at = groups.Index(g, i);
        const int64_t channel = groups.Channel(g, i);
        c.output(0).data<T>()[at] =
            Write<T>((Read(x[at]) - mean) * rstd * Read(scale[channel]) + Read(offset[channel]));
      }
      c.output(1).data<T>()[g] = Write<T>(mean);
      if (!kByRow) c.output(2).data<T>()[g] = Write<T>(variance);
      c.output(kByRow ? 2 : 3).data<T>()[g] = Write<T>(rstd);
    }
  });
  return absl::OkStatus();
}

// With n = (x - mean) * rstd and d = dy * scale:
//   dx = rstd * (d - mean(d) - n * mean(d * n)), dscale = sum(dy * n), doffset = sum(dy).
template <typename T>
void InputGradient(KernelContext& c, const Groups& groups) {
  const T* dy = c.input(0).data<T>();
  const T* x = c.input(1).data<T>();
  const T* scale = c.input(2).data<T>();
  for (int64_t g = 0; g < groups.count; ++g) {
    const double mean = Read(c.input(3).data<T>()[g]);
    const double rstd = Read(c.input(4).data<T>()[g]);
    const double number = groups.elements > 0 ? double(groups.elements) : 1;
    double mean_d = 0;
    double mean_dn = 0;
    for (int64_t i = 0; i < groups.elements; ++i) {
      const int64_t at = groups.Index(g, i);
      const double d = Read(dy[at]) * Read(scale[groups.Channel(g, i)]);
      mean_d += d / number;
      mean_dn += d * (Read(x[at]) - mean) * rstd / number;
    }
    for (int64_t i = 0; i < groups.elements; ++i) {
      const int64_t at = groups.Index(g, i);
      const double d = Read(dy[at]) * Read(scale[groups.Channel(g, i)]);
      const double n = (Read(x[at]) - mean) * rstd;
      c.output(0).data<T>()[at] = Write<T>(rstd * (d - mean_d - n * mean_dn));
    }
  }
}

template <typename T>
void ParameterGradients(KernelContext& c, bool by_row) {
  const T* dy = c.input(0).data<T>();
  const T* x = c.input(1).data<T>();
  const RowsAndClasses size(c.input(1).shape());
  for (int64_t channel = 0; channel < size.classes; ++channel) {
    double dscale = 0;
    double doffset = 0;
    for (int64_t row = 0; row < size.rows; ++row) {
      const int64_t at = row * size.classes + channel;
      const int64_t group = by_row ? row : channel;
      const double mean = Read(c.input(3).data<T>()[group]);
      const double rstd = Read(c.input(4).data<T>()[group]);
      dscale += Read(dy[at]) * (Read(x[at]) - mean) * rstd;
      doffset += Read(dy[at]);
    }
    c.output(1).data<T>()[channel] = Write<T>(dscale);
    c.output(2).data<T>()[channel] = Write<T>(doffset);
  }
}

template <bool kByRow>
absl::Status NormalizeGrad(KernelContext& c) {
  const Groups groups(c.input(1).shape(), kByRow);
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    ParameterGradients<T>(c, kByRow);
    if (c.output(0).elements() > 0) InputGradient<T>(c, groups);
  });
  return absl::OkStatus();
}

absl::Status BatchNormInference(KernelContext& c) {
  const double epsilon = c.node->attr<double>("epsilon");
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t elements = c.input(0).elements();
    const int64_t channels = c.input(1).elements();
    const auto at = [&](int input, int64_t i) { return Read(c.input(input).data<T>()[i]); };
    for (int64_t i = 0; i < elements; ++i) {
      const int64_t channel = i % channels;
      const double rstd = 1 / std::sqrt(at(4, channel) + epsilon);
      const double n = (at(0, i) - at(3, channel)) * rstd;
      c.output(0).data<T>()[i] = Write<T>(n * at(1, channel) + at(2, channel));
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterNormRefKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat16, kBFloat16, kFloat32, kFloat64};
  AddFunctionKernel(registry, "LayerNorm", "ref", Normalize<true>, dtypes, {{0, 0}});
  AddFunctionKernel(registry, "LayerNormGrad", "ref", NormalizeGrad<true>, dtypes,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "BatchNorm", "ref", Normalize<false>, dtypes, {{0, 0}});
  AddFunctionKernel(registry, "BatchNormGrad", "ref", NormalizeGrad<false>, dtypes,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "BatchNormInference", "ref", BatchNormInference, dtypes, {{0, 0}});
}

}  // namespace tutti
