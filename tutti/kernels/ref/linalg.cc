// Matrix algebra by the book, in double: Gaussian elimination with partial pivoting, and the
// Cholesky decomposition row by row.
#include <cmath>
#include <utility>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/matrices.h"

namespace tutti {
namespace {

// Copies matrix a ([n, n]), transposed if asked, into `work` as double.
template <typename T>
void CopyMatrix(const T* a, int64_t n, bool transpose, double* work) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j)
      work[i * n + j] = double(transpose ? a[j * n + i] : a[i * n + j]);
  }
}

// Brings `work` ([n, n]) to upper triangular form and applies the same row operations to `right`
// ([n, columns], may be null). Returns the determinant; stops at a pivot of 0, whose index goes to
// *singular (-1 if there is none).
double Eliminate(double* work, int64_t n, double* right, int64_t columns, int64_t* singular) {
  double determinant = 1;
  *singular = -1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < n; ++i) {
      if (std::fabs(work[i * n + k]) > std::fabs(work[best * n + k])) best = i;
    }
    if (work[best * n + k] == 0) {
      *singular = k;
      return 0;
    }
    if (best != k) {
      for (int64_t j = 0; j < n; ++j) std::swap(work[k * n + j], work[best * n + j]);
      for (int64_t j = 0; j < columns; ++j)
        std::swap(right[k * columns + j], right[best * columns + j]);
      determinant = -determinant;
    }
    determinant *= work[k * n + k];
    for (int64_t i = k + 1; i < n; ++i) {
      const double factor = work[i * n + k] / work[k * n + k];
      for (int64_t j = k; j < n; ++j) work[i * n + j] -= factor * work[k * n + j];
      for (int64_t j = 0; j < columns; ++j)
        right[i * columns + j] -= factor * right[k * columns + j];
    }
  }
  return determinant;
}

// Solves the triangular system that Eliminate left, in `right` itself.
void SubstituteBack(const double* work, int64_t n, double* right, int64_t columns) {
  for (int64_t i = n - 1; i >= 0; --i) {
    for (int64_t j = 0; j < columns; ++j) {
      double value = right[i * columns + j];
      for (int64_t k = i + 1; k < n; ++k) value -= work[i * n + k] * right[k * columns + j];
      right[i * columns + j] = value / work[i * n + i];
    }
  }
}

template <typename T>
void Narrow(const double* from, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = T(from[i]);
}

// Solves a x = right for each matrix, where right is the identity for the inverse.
class SolveKernel : public Kernel {
 public:
  explicit SolveKernel(bool inverse) : inverse_(inverse) {}

  absl::Status Prepare(PrepareContext& context) override {
    if (!context.input(0).shape.IsFullyKnown() || !context.output(0).shape.IsFullyKnown())
      return absl::OkStatus();
    const MatrixBatch a(context.input(0).shape);
    const MatrixBatch x(context.output(0).shape);
    context.SetScratchBytes(size_t(a.rows * a.columns + x.rows * x.columns) * sizeof(double));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    return c.input(0).dtype() == kFloat64 ? Run<double>(c) : Run<float>(c);
  }

 private:
  template <typename T>
  absl::Status Run(KernelContext& c) {
    if (c.output(0).elements() == 0) return absl::OkStatus();
    const MatrixBatch size(c.output(0).shape());
    const int64_t n = size.rows;
    const int64_t columns = size.columns;
    const bool transpose = c.node->attr<bool>(inverse_ ? "transpose" : "transpose_a");
    auto* work = reinterpret_cast<double*>(c.scratch().data());
    double* right = work + n * n;
    for (int64_t batch = 0; batch < size.count; ++batch) {
      CopyMatrix(c.input(0).data<T>() + batch * n * n, n, transpose, work);
      for (int64_t i = 0; i < n * columns; ++i) {
        right[i] = inverse_ ? (i / columns == i % columns ? 1.0 : 0.0)
                            : double(c.input(1).data<T>()[batch * n * columns + i]);
      }
      int64_t singular = -1;
      Eliminate(work, n, right, columns, &singular);
      if (singular >= 0) return SingularMatrix(batch, size.count, singular);
      SubstituteBack(work, n, right, columns);
      Narrow(right, n * columns, c.output(0).data<T>() + batch * n * columns);
    }
    return absl::OkStatus();
  }

  const bool inverse_;
};

class InverseKernel : public SolveKernel {
 public:
  InverseKernel() : SolveKernel(true) {}
};
class MatrixSolveKernel : public SolveKernel {
 public:
  MatrixSolveKernel() : SolveKernel(false) {}
};

class DeterminantKernel : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    if (!context.input(0).shape.IsFullyKnown()) return absl::OkStatus();
    const MatrixBatch a(context.input(0).shape);
    context.SetScratchBytes(size_t(a.rows * a.columns) * sizeof(double));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    return c.input(0).dtype() == kFloat64 ? Run<double>(c) : Run<float>(c);
  }

 private:
  template <typename T>
  absl::Status Run(KernelContext& c) {
    const MatrixBatch size(c.input(0).shape());
    auto* work = reinterpret_cast<double*>(c.scratch().data());
    for (int64_t batch = 0; batch < size.count; ++batch) {
      CopyMatrix(c.input(0).data<T>() + batch * size.rows * size.rows, size.rows, false, work);
      int64_t singular = -1;
      c.output(0).data<T>()[batch] = T(Eliminate(work, size.rows, nullptr, 0, &singular));
    }
    return absl::OkStatus();
  }
};

template <typename T>
absl::Status CholeskyOf(KernelContext& c) {
  if (c.output(0).elements() == 0) return absl::OkStatus();
  const MatrixBatch size(c.input(0).shape());
  const int64_t n = size.rows;
  for (int64_t batch = 0; batch < size.count; ++batch) {
    const T* a = c.input(0).data<T>() + batch * n * n;
    T* l = c.output(0).data<T>() + batch * n * n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        if (j > i) {
          l[i * n + j] = T(0);
          continue;
        }
        double value = (double(a[i * n + j]) + double(a[j * n + i])) / 2;
        for (int64_t k = 0; k < j; ++k) value -= double(l[i * n + k]) * double(l[j * n + k]);
        if (j < i) {
          l[i * n + j] = T(value / double(l[j * n + j]));
        } else if (value > 0) {
          l[i * n + i] = T(std::sqrt(value));
        } else {
          return NotPositiveDefinite(batch, size.count);
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Cholesky(KernelContext& c) {
  return c.input(0).dtype() == kFloat64 ? CholeskyOf<double>(c) : CholeskyOf<float>(c);
}

}  // namespace

void RegisterLinalgRefKernels(KernelRegistry& registry) {
  const std::vector<DType> dtypes = {kFloat32, kFloat64};
  AddKernel<InverseKernel>(registry, "MatrixInverse", "ref", dtypes, {{0, 0}});
  AddKernel<MatrixSolveKernel>(registry, "MatrixSolve", "ref", dtypes, {{1, 0}});
  AddKernel<DeterminantKernel>(registry, "MatrixDeterminant", "ref", dtypes);
  AddFunctionKernel(registry, "Cholesky", "ref", Cholesky, dtypes);
}

}  // namespace tutti
