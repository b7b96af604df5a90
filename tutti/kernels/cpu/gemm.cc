#include "tutti/kernels/cpu/gemm.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <cstring>

namespace tutti {

absl::Status Gemm::Run(const float* a, const float* b, float* c) const {
  if (m == 0 || n == 0) return absl::OkStatus();
  if (k == 0) {
    std::memset(c, 0, size_t(m * n) * sizeof(float));
    return absl::OkStatus();
  }
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, 1.0f, a,
                 transpose_a ? m : k, b, transpose_b ? k : n, 0.0f, c, n);
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) return ResourceExhausted("oneDNN's sgemm is out of memory");
  return Internal("oneDNN's sgemm [{}, {}] x [{}, {}] failed with status {}", m, k, k, n,
                  int(status));
}

}  // namespace tutti
