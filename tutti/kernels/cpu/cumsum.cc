// Running sums along an axis. Seen as [outer, axis, inner]: the sums of one outer index are made
// row by row, so that memory is read in order; only the last axis has a chain of additions, which
// runs in double.
#include <algorithm>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"

namespace tutti {
namespace {

struct Scan {
  int64_t outer = 1;
  int64_t length = 1;
  int64_t inner = 1;
  bool exclusive = false;
  bool reverse = false;
};

void ScanRow(const Scan& scan, const float* x, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < scan.length; ++i) {
    const int64_t at = scan.reverse ? scan.length - 1 - i : i;
    const double before = sum;
    sum += double(x[at]);
    y[at] = float(scan.exclusive ? before : sum);
  }
}

// One [length, inner] matrix.
void ScanColumns(const Scan& scan, const float* x, float* y) {
  const int64_t step = scan.reverse ? -scan.inner : scan.inner;
  const int64_t first = scan.reverse ? (scan.length - 1) * scan.inner : 0;
  for (int64_t i = 0; i < scan.length; ++i) {
    const int64_t at = first + i * step;
    const float* row = x + (scan.exclusive ? at - step : at);
    float* sums = y + at;
    if (i == 0) {
      for (int64_t j = 0; j < scan.inner; ++j) sums[j] = scan.exclusive ? 0 : row[j];
      continue;
    }
    const float* before = y + at - step;
    for (int64_t j = 0; j < scan.inner; ++j) sums[j] = before[j] + row[j];
  }
}

absl::Status Cumsum(KernelContext& c) {
  const Shape& shape = c.input(0).shape();
  if (c.input(0).elements() == 0) return absl::OkStatus();
  Scan scan;
  scan.exclusive = c.node->attr<bool>("exclusive");
  scan.reverse = c.node->attr<bool>("reverse");
  const int64_t given = c.node->attr<int64_t>("axis");
  const int axis = int(given < 0 ? given + shape.rank() : given);
  for (int i = 0; i < shape.rank(); ++i) {
    (i < axis ? scan.outer : i > axis ? scan.inner : scan.length) *= shape.dim(i);
  }
  const float* x = c.input(0).data<float>();
  float* y = c.output(0).data<float>();
  const int64_t matrix = scan.length * scan.inner;
  const int64_t grain = std::max<int64_t>(1, 16384 / matrix);
  c.team().ParallelFor(scan.outer, grain, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      if (scan.inner == 1) {
        ScanRow(scan, x + o * matrix, y + o * matrix);
      } else {
        ScanColumns(scan, x + o * matrix, y + o * matrix);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace

void RegisterCumsumCpuKernels(KernelRegistry& registry) {
  AddFunctionKernel(registry, "Cumsum", "cpu", Cumsum, {kFloat32});
}

}  // namespace tutti
