// Softmax and its losses on float32: rows are spread over the cores, each goes through the loops of
// softmax_loops.cc.
#include <algorithm>
#include <array>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/softmax_loops.h"
#include "tutti/kernels/shape/labels.h"

namespace tutti {
namespace {

// A core takes at least so many elements: at about 1 ns each they take longer than waking it.
constexpr int64_t kElementsPerCore = 8192;

template <typename Body>
void ForRows(KernelContext& c, const RowsAndClasses& size, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kElementsPerCore / std::max<int64_t>(1, size.classes));
  c.team().ParallelFor(size.rows, grain, body);
}

template <void (*kRows)(const float*, int64_t, int64_t, float*)>
absl::Status Forward(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const RowsAndClasses size(c.input(0).shape());
  ForRows(c, size, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * size.classes;
    kRows(c.input(0).data<float>() + at, end - begin, size.classes, c.output(0).data<float>() + at);
  });
  return absl::OkStatus();
}

template <void (*kRows)(const float*, const float*, int64_t, int64_t, float*)>
absl::Status Backward(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const RowsAndClasses size(c.input(0).shape());
  ForRows(c, size, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * size.classes;
    kRows(c.input(0).data<float>() + at, c.input(1).data<float>() + at, end - begin, size.classes,
          c.output(0).data<float>() + at);
  });
  return absl::OkStatus();
}

absl::Status SoftmaxCrossEntropy(KernelContext& c) {
  const RowsAndClasses size(c.input(0).shape());
  ForRows(c, size, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * size.classes;
    SoftmaxCrossEntropyRows(c.input(0).data<float>() + at, c.input(1).data<float>() + at,
                            end - begin, size.classes, c.output(0).data<float>() + begin,
                            c.output(1).data<float>() + at);
  });
  return absl::OkStatus();
}

absl::Status SparseSoftmaxCrossEntropy(KernelContext& c) {
  const RowsAndClasses size(c.input(0).shape());
  const Tensor& labels = c.input(1);
  TUTTI_RETURN_IF_ERROR(CheckLabels(labels, size.classes, "label"));
  const float* x = c.input(0).data<float>();
  float* loss = c.output(0).data<float>();
  float* backprop = c.output(1).data<float>();
  ForRows(c, size, [&](int64_t begin, int64_t end) {
    // In parts, since the label's logit must be read before backprop may take its place.
    std::array<float, 64> chosen;
    for (int64_t first = begin; first < end; first += int64_t(chosen.size())) {
      const int64_t count = std::min(int64_t(chosen.size()), end - first);
      for (int64_t i = 0; i < count; ++i) {
        chosen[i] = x[(first + i) * size.classes + LabelAt(labels, first + i)];
      }
      SoftmaxWithLogSumRows(x + first * size.classes, count, size.classes,
                            backprop + first * size.classes, loss + first);
      for (int64_t i = 0; i < count; ++i) {
        loss[first + i] -= chosen[i];
        backprop[(first + i) * size.classes + LabelAt(labels, first + i)] -= 1;
      }
    }
  });
  return absl::OkStatus();
}

absl::Status SigmoidCrossEntropy(KernelContext& c) {
  c.team().ParallelFor(c.input(0).elements(), kElementsPerCore, [&](int64_t begin, int64_t end) {
    SigmoidCrossEntropyElements(c.input(0).data<float>() + begin, c.input(1).data<float>() + begin,
                                end - begin, c.output(0).data<float>() + begin);
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterSoftmaxCpuKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat32};
  AddFunctionKernel(registry, "Softmax", "cpu", Forward<SoftmaxRows>, dtypes, {{0, 0}});
  AddFunctionKernel(registry, "LogSoftmax", "cpu", Forward<LogSoftmaxRows>, dtypes, {{0, 0}});
  AddFunctionKernel(registry, "SoftmaxGrad", "cpu", Backward<SoftmaxGradRows>, dtypes,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "LogSoftmaxGrad", "cpu", Backward<LogSoftmaxGradRows>, dtypes,
                    {{0, 0}, {1, 0}});
  AddFunctionKernel(registry, "SoftmaxCrossEntropy", "cpu", SoftmaxCrossEntropy, dtypes,
                    {{0, 1}, {1, 1}});
  AddFunctionKernel(registry, "SparseSoftmaxCrossEntropy", "cpu", SparseSoftmaxCrossEntropy, dtypes,
                    {{0, 1}});
  AddFunctionKernel(registry, "SigmoidCrossEntropy", "cpu", SigmoidCrossEntropy, dtypes,
                    {{0, 0}, {1, 0}});
}

}  // namespace tutti
