#include "tutti/kernels/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tutti/kernels/cpu/gemm_packed.h"

namespace tutti {
namespace {

struct Size {
  int64_t m, n, k;
};

// Both ways to multiply against plain loops in double, for sizes around the edges of tiles, panels
// and blocks.
TEST(PackedGemm, EqualsPlainLoopsWhateverTheStridesAndCores) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> number(-1, 1);
  const Size sizes[] = {{1, 1, 1},    {6, 16, 8},    {7, 17, 9},      {5, 15, 257},
                        {97, 33, 31}, {13, 513, 20}, {200, 100, 300}, {3, 1024, 600}};
  for (const auto& [m, n, k] : sizes) {
    std::vector<float> a(size_t(m * k)), b(size_t(k * n));
    for (float& v : a) v = number(random);
    for (float& v : b) v = number(random);
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        const GemmOperand op_a{a.data(), ta ? 1 : k, ta ? m : 1};
        const GemmOperand op_b{b.data(), tb ? 1 : n, tb ? k : 1};
        std::vector<float> one(size_t(m * n), NAN), two(size_t(m * n), NAN),
            run(size_t(m * n), NAN);
        PackedGemm(m, n, k, op_a, op_b, one.data(), n, 1);
        PackedGemm(m, n, k, op_a, op_b, two.data(), n, 2);
        const Gemm gemm{.m = m, .n = n, .k = k, .transpose_a = ta, .transpose_b = tb};
        ASSERT_TRUE(gemm.Run(a.data(), b.data(), run.data()).ok());
        EXPECT_EQ(one, two) << m << " " << n << " " << k;
        // Adding the product times -1 to itself leaves zeros, but for the rounding of the blocks.
        std::vector<float> gone = one;
        PackedGemm(m, n, k, op_a, op_b, gone.data(), n, 1, -1.0f, true);
        for (const float left : gone) ASSERT_NEAR(left, 0, 1e-4);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p) {
              sum += double(op_a.data[i * op_a.row_stride + p * op_a.column_stride]) *
                     op_b.data[p * op_b.row_stride + j * op_b.column_stride];
            }
            ASSERT_NEAR(one[size_t(i * n + j)], sum, 1e-4) << m << " " << n << " " << k;
            ASSERT_NEAR(run[size_t(i * n + j)], sum, 1e-4) << m << " " << n << " " << k;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti
