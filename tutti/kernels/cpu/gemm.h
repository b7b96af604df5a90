#pragma once

#include <cstdint>

#include "tutti/base/status.h"

namespace tutti {

// c[m, n] = alpha * op(a) x op(b) in float32, or adds that to what c holds; all dense and
// row-major. Any of m, n, k may be 0 (k = 0 gives zeros). Runs on the cores of the thread's
// TeamScope; inside Team::ParallelFor on one. A plain value, thread-safe.
struct Gemm {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  // a is [k, m]
  bool transpose_b = false;  // b is [n, k]
  float alpha = 1;
  bool accumulate = false;

  // Does Run take our packed kernel, so that it is faster than oneDNN's own matmul?
  bool Packs() const;

  absl::Status Run(const float* a, const float* b, float* c) const;

  // Run by a given kernel, whatever Packs() says: `tutti bench gemm` measures both.
  enum class Way { kOneDnn, kPacked };
  absl::Status RunBy(Way way, const float* a, const float* b, float* c) const;
};

}  // namespace tutti
