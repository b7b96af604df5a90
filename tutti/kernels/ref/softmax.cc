// Softmax and its losses row by row, in double.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/floating.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/labels.h"

namespace tutti {
namespace {

const std::vector<DType> kFloats = {kFloat16, kBFloat16, kFloat32, kFloat64};

// max and log(sum(exp(x - max))) of a row.
struct RowScale {
  double largest = -std::numeric_limits<double>::infinity();
  double log_sum = 0;
  double LogOf(double x) const { return x - largest - log_sum; }
};

template <typename T>
RowScale ScaleOf(const T* row, int64_t classes) {
  RowScale scale;
  for (int64_t j = 0; j < classes; ++j) scale.largest = std::max(scale.largest, Read(row[j]));
  double sum = 0;
  for (int64_t j = 0; j < classes; ++j) sum += std::exp(Read(row[j]) - scale.largest);
  scale.log_sum = std::log(sum);
  return scale;
}

template <bool kLog>
absl::Status Softmax(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const RowsAndClasses size(c.input(0).shape());
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < size.rows; ++i) {
      const T* x = c.input(0).data<T>() + i * size.classes;
      T* y = c.output(0).data<T>() + i * size.classes;
      const RowScale scale = ScaleOf(x, size.classes);
      for (int64_t j = 0; j < size.classes; ++j) {
        const double log_y = scale.LogOf(Read(x[j]));
        y[j] = Write<T>(kLog ? log_y : std::exp(log_y));
      }
    }
  });
  return absl::OkStatus();
}

template <bool kLog>
absl::Status SoftmaxGrad(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const RowsAndClasses size(c.input(0).shape());
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < size.rows; ++i) {
      const T* y = c.input(0).data<T>() + i * size.classes;
      const T* dy = c.input(1).data<T>() + i * size.classes;
      T* dx = c.output(0).data<T>() + i * size.classes;
      double sum = 0;
      for (int64_t j = 0; j < size.classes; ++j) {
        sum += kLog ? Read(dy[j]) : Read(dy[j]) * Read(y[j]);
      }
      for (int64_t j = 0; j < size.classes; ++j) {
        dx[j] = Write<T>(kLog ? Read(dy[j]) - std::exp(Read(y[j])) * sum
                              : Read(y[j]) * (Read(dy[j]) - sum));
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SoftmaxCrossEntropy(KernelContext& c) {
  const RowsAndClasses size(c.input(0).shape());
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < size.rows; ++i) {
      const T* x = c.input(0).data<T>() + i * size.classes;
      const T* labels = c.input(1).data<T>() + i * size.classes;
      T* backprop = c.output(1).data<T>() + i * size.classes;
      const RowScale scale = ScaleOf(x, size.classes);
      double loss = 0;
      double weight = 0;
      for (int64_t j = 0; j < size.classes; ++j) {
        // A class without weight counts nothing, however unlikely it is.
        if (Read(labels[j]) != 0) loss -= Read(labels[j]) * scale.LogOf(Read(x[j]));
        weight += Read(labels[j]);
      }
      for (int64_t j = 0; j < size.classes; ++j) {
        backprop[j] = Write<T>(std::exp(scale.LogOf(Read(x[j]))) * weight - Read(labels[j]));
      }
      c.output(0).data<T>()[i] = Write<T>(loss);
    }
  });
  return absl::OkStatus();
}

absl::Status SparseSoftmaxCrossEntropy(KernelContext& c) {
  const RowsAndClasses size(c.input(0).shape());
  TUTTI_RETURN_IF_ERROR(CheckLabels(c.input(1), size.classes, "label"));
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < size.rows; ++i) {
      const T* x = c.input(0).data<T>() + i * size.classes;
      T* backprop = c.output(1).data<T>() + i * size.classes;
      const RowScale scale = ScaleOf(x, size.classes);
      const int64_t label = LabelAt(c.input(1), i);
      c.output(0).data<T>()[i] = Write<T>(-scale.LogOf(Read(x[label])));
      for (int64_t j = 0; j < size.classes; ++j) {
        backprop[j] = Write<T>(std::exp(scale.LogOf(Read(x[j]))) - (j == label ? 1 : 0));
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SigmoidCrossEntropy(KernelContext& c) {
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t count = c.input(0).elements();
    for (int64_t i = 0; i < count; ++i) {
      const double x = Read(c.input(0).data<T>()[i]);
      const double z = Read(c.input(1).data<T>()[i]);
      c.output(0).data<T>()[i] =
          Write<T>(std::max(x, 0.0) - x * z + std::log1p(std::exp(-std::fabs(x))));
    }
  });
  return absl::OkStatus();
}

absl::Status L2Loss(KernelContext& c) {
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    double sum = 0;
    for (const T value : c.input(0).values<T>()) sum += Read(value) * Read(value);
    *c.output(0).data<T>() = Write<T>(sum / 2);
  });
  return absl::OkStatus();
}

absl::Status InTopK(KernelContext& c) {
  const RowsAndClasses size(c.input(0).shape());
  const int64_t k = c.node->attr<int64_t>("k");
  TUTTI_RETURN_IF_ERROR(CheckLabels(c.input(1), size.classes, "target"));
  VisitFloating(c.input(0).dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < size.rows; ++i) {
      const T* row = c.input(0).data<T>() + i * size.classes;
      const double target = Read(row[LabelAt(c.input(1), i)]);
      int64_t larger = 0;
      for (int64_t j = 0; j < size.classes; ++j) larger += Read(row[j]) > target ? 1 : 0;
      c.output(0).data<bool>()[i] = std::isfinite(target) && larger < k;
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterSoftmaxRefKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "Softmax", "ref", Softmax<false>, kFloats, {{0, 0}});
  AddFunctionKernel(registry, "LogSoftmax", "ref", Softmax<true>, kFloats, {{0, 0}});
  AddFunctionKernel(registry, "SoftmaxGrad", "ref", SoftmaxGrad<false>, kFloats, {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "LogSoftmaxGrad", "ref", SoftmaxGrad<true>, kFloats,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "SoftmaxCrossEntropy", "ref", SoftmaxCrossEntropy, kFloats,
                    {{0, 1}, {1, 1}});
  AddFunctionKernel(registry, "SparseSoftmaxCrossEntropy", "ref", SparseSoftmaxCrossEntropy,
                    kFloats, {{0, 1}});
  AddFunctionKernel(registry, "SigmoidCrossEntropy", "ref", SigmoidCrossEntropy, kFloats,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "L2Loss", "ref", L2Loss, kFloats);
  AddFunctionKernel(registry, "InTopK", "ref", InTopK, kFloats);
}

}  // namespace tutti
