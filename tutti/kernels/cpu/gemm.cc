// A product goes to oneDNN's sgemm, or to our packed one where rows that are a multiple of 4 KB
// apart put whole columns into one set of the cache, which oneDNN's kernel does not pack away.
// `tutti bench gemm --sweep` compares both on other shapes than those below, with the choice. On
// one core of an AVX2 machine, in GFLOP/s, oneDNN against packed:
//   [1024, 256]^T x [1024, 1024]  41 against 73      [128, 64] x [64, 128]     87 against 66
//   [1024, 1024]^T x [1024, 256]  67 against 74      [1024, 256] x [256, 256]  85 against 83
//   [128, 1024] x [1024, 1024]    68 against 70      [128, 1024] x [1024, 1024]^T  79 against 73
//   [1024, 1024] x [256, 1024]^T  76 against 82
#include "tutti/kernels/cpu/gemm.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstring>

#include "tutti/kernels/cpu/gemm_packed.h"

namespace tutti {
namespace {

constexpr int64_t kPage = 1024;  // floats

absl::Status ToStatus(dnnl_status_t status, const Gemm& g) {
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) return ResourceExhausted("oneDNN's sgemm is out of memory");
  return Internal("oneDNN's sgemm [{}, {}] x [{}, {}] failed with status {}", g.m, g.k, g.k, g.n,
                  int(status));
}

}  // namespace

bool Gemm::Packs() const {
  if (k < 512) return false;
  if (transpose_a) return !transpose_b && (m % kPage == 0 || n % kPage == 0);
  if (transpose_b) return k % kPage == 0 && m >= 512 && n <= 512;
  return n % kPage == 0 && m <= 256;
}

absl::Status Gemm::Run(const float* a, const float* b, float* c) const {
  return RunBy(Packs() ? Way::kPacked : Way::kOneDnn, a, b, c);
}

absl::Status Gemm::RunBy(Way way, const float* a, const float* b, float* c) const {
  if (m == 0 || n == 0) return absl::OkStatus();
  if (k == 0) {
    if (!accumulate) std::memset(c, 0, size_t(m * n) * sizeof(float));
    return absl::OkStatus();
  }
  if (way == Way::kPacked) {
    const GemmOperand op_a{a, transpose_a ? 1 : k, transpose_a ? m : 1};
    const GemmOperand op_b{b, transpose_b ? 1 : n, transpose_b ? k : 1};
    PackedGemm(m, n, k, op_a, op_b, c, n, omp_in_parallel() ? 1 : omp_get_max_threads(), alpha,
               accumulate);
    return absl::OkStatus();
  }
  return ToStatus(
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a,
                 transpose_a ? m : k, b, transpose_b ? k : n, accumulate ? 1.0f : 0.0f, c, n),
      *this);
}

}  // namespace tutti
