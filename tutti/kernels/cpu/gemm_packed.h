#pragma once

#include <cstdint>

namespace tutti {

// One operand of a product, as it lies in memory: element (i, j) of op(x) is
// data[i * row_stride + j * column_stride], where one of the strides is 1.
struct GemmOperand {
  const float* data = nullptr;
  int64_t row_stride = 0;
  int64_t column_stride = 1;
};

// c[m, n] = alpha * a[m, k] x b[k, n] in float32, or adds that to what c holds; c is row-major with
// rows `c_stride` apart. Copies blocks of
// a and b into contiguous panels first, so that no stride of the operands costs anything in the
// inner loop. `cores` as many threads at most; the result does not depend on them.
void PackedGemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                float* c, int64_t c_stride, int cores, float alpha = 1, bool accumulate = false);

}  // namespace tutti
