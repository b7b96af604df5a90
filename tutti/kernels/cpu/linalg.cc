// Matrix algebra on float32 with Eigen: blocked LU with partial pivoting and blocked Cholesky.
// Matrices of a batch are spread over the cores; the first one that fails, in the order of the
// batch, is the one that is reported.
#include <Eigen/Cholesky>
#include <Eigen/LU>
#include <algorithm>
#include <atomic>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/shape/matrices.h"

namespace tutti {
namespace {

// Row-major maps of tensors; results and work of Eigen's own are column-major, which is faster.
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const RowMajor>;
using Map = Eigen::Map<RowMajor>;
using Lu = Eigen::PartialPivLU<Eigen::MatrixXf>;

// Where the lowest failing matrix of a batch is remembered.
class FirstFailure {
 public:
  void Report(int64_t batch) {
    int64_t known = batch_.load(std::memory_order_relaxed);
    while (batch < known && !batch_.compare_exchange_weak(known, batch)) {
    }
  }
  bool any() const { return batch_ != kNone; }
  int64_t batch() const { return batch_; }

 private:
  static constexpr int64_t kNone = INT64_MAX;
  std::atomic<int64_t> batch_{kNone};
};

template <typename Body>
void ForMatrices(KernelContext& c, const MatrixBatch& size, const Body& body) {
  // A matrix of 32 rows is enough work for a core.
  const int64_t work = std::max<int64_t>(1, size.rows * size.rows * size.rows);
  c.team().ParallelFor(size.count, std::max<int64_t>(1, 32768 / work),
                       [&](int64_t begin, int64_t end) {
                         for (int64_t i = begin; i < end; ++i) body(i);
                       });
}

// The index of a pivot of 0; -1 when there is none.
int64_t ZeroPivot(const Lu& lu) {
  const auto& factors = lu.matrixLU();
  for (Eigen::Index i = 0; i < factors.rows(); ++i) {
    if (factors(i, i) == 0) return i;
  }
  return -1;
}

ConstMap MatrixAt(const Tensor& t, const MatrixBatch& size, int64_t batch) {
  return ConstMap(t.data<float>() + batch * size.rows * size.columns, size.rows, size.columns);
}
Map MatrixAt(Tensor& t, const MatrixBatch& size, int64_t batch) {
  return Map(t.data<float>() + batch * size.rows * size.columns, size.rows, size.columns);
}

// Decomposes matrix `batch` of input 0, transposed if asked.
Lu Decompose(KernelContext& c, const MatrixBatch& size, int64_t batch, bool transpose) {
  const ConstMap a = MatrixAt(c.input(0), size, batch);
  if (transpose) return Lu(a.transpose());
  return Lu(a);
}

// The failure again, to name its pivot.
absl::Status Singular(KernelContext& c, const MatrixBatch& size, int64_t batch, bool transpose) {
  return SingularMatrix(batch, size.count, ZeroPivot(Decompose(c, size, batch, transpose)));
}

absl::Status MatrixInverse(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const MatrixBatch size(c.input(0).shape());
  const bool transpose = c.node->attr<bool>("transpose");
  FirstFailure failure;
  ForMatrices(c, size, [&](int64_t batch) {
    const Lu lu = Decompose(c, size, batch, transpose);
    if (ZeroPivot(lu) >= 0) return failure.Report(batch);
    MatrixAt(c.output(0), size, batch) = lu.inverse();
  });
  if (failure.any()) return Singular(c, size, failure.batch(), transpose);
  return absl::OkStatus();
}

absl::Status MatrixSolve(KernelContext& c) {
  if (c.output(0).elements() == 0) return absl::OkStatus();
  const MatrixBatch size(c.input(0).shape());
  const MatrixBatch right(c.input(1).shape());
  const bool transpose = c.node->attr<bool>("transpose_a");
  FirstFailure failure;
  ForMatrices(c, size, [&](int64_t batch) {
    const Lu lu = Decompose(c, size, batch, transpose);
    if (ZeroPivot(lu) >= 0) return failure.Report(batch);
    const Eigen::MatrixXf x = lu.solve(MatrixAt(c.input(1), right, batch));
    MatrixAt(c.output(0), right, batch) = x;
  });
  if (failure.any()) return Singular(c, size, failure.batch(), transpose);
  return absl::OkStatus();
}

absl::Status MatrixDeterminant(KernelContext& c) {
  const MatrixBatch size(c.input(0).shape());
  ForMatrices(c, size, [&](int64_t batch) {
    c.output(0).data<float>()[batch] =
        size.rows == 0 ? 1.0f : Decompose(c, size, batch, false).determinant();
  });
  return absl::OkStatus();
}

absl::Status Cholesky(KernelContext& c) {
  if (c.input(0).elements() == 0) return absl::OkStatus();
  const MatrixBatch size(c.input(0).shape());
  FirstFailure failure;
  ForMatrices(c, size, [&](int64_t batch) {
    const ConstMap a = MatrixAt(c.input(0), size, batch);
    const Eigen::LLT<Eigen::MatrixXf> llt((a + a.transpose()) * 0.5f);
    // Eigen lets NaN pass.
    const auto diagonal = llt.matrixLLT().diagonal().array();
    if (llt.info() != Eigen::Success || !(diagonal > 0).all()) return failure.Report(batch);
    MatrixAt(c.output(0), size, batch) = llt.matrixL();
  });
  if (failure.any()) return NotPositiveDefinite(failure.batch(), size.count);
  return absl::OkStatus();
}

}  // namespace

void RegisterLinalgCpuKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat32};
  AddFunctionKernel(registry, "MatrixInverse", "cpu", MatrixInverse, dtypes);
  AddFunctionKernel(registry, "MatrixSolve", "cpu", MatrixSolve, dtypes);
  AddFunctionKernel(registry, "MatrixDeterminant", "cpu", MatrixDeterminant, dtypes);
  AddFunctionKernel(registry, "Cholesky", "cpu", Cholesky, dtypes);
}

}  // namespace tutti
