// Rows of a variable, copied from where it lives. Nobody can change a row while it is copied: the
// rows are copied in batches, each under the variable's lock, and updates of rows work in such
// batches too (update_kernel.cc). So every row is from one moment, and neither a look-up nor an
// update waits for the whole of the other.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "tutti/base/checked.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/update/row_indices.h"
#include "tutti/kernels/update/variable_access.h"

namespace tutti {
namespace {

constexpr int64_t kBytesPerCore = 1 << 15;  // less than this is not worth another core

class GatherRowsKernel final : public DynamicKernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_RETURN_IF_ERROR(DynamicKernel::Prepare(c));
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().input(0), c.device()));
    declared_ = {c.node().input(0).dtype(), c.node().input(0).shape()};
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const RowIndices indices(c.input(1));
    int64_t done = 0;
    do {
      std::lock_guard lock(state_->mutex());
      const Tensor& table = state_->value_locked();
      if (done == 0) {
        TUTTI_RETURN_IF_ERROR(Start(c, table));
        shape_ = table.shape();
      } else if (!table.valid() || table.shape() != shape_) {
        return Aborted("variable \"{}\" got another shape while its rows were read",
                       state_->name());
      }
      done = CopyBatch(c, indices, table, done);
    } while (done < indices.size());
    return absl::OkStatus();
  }

 private:
  // Checks the table and the indices, makes the output.
  absl::Status Start(KernelContext& c, const Tensor& table) const {
    if (!table.valid()) {
      return FailedPrecondition(
          "variable \"{}\" has no value yet; call Session::Initialize() or Assign first",
          state_->name());
    }
    TUTTI_RETURN_IF_ERROR(CheckDeclared(*state_, table, declared_));
    TUTTI_RETURN_IF_ERROR(
        RowIndices(c.input(1)).CheckRange(table.shape(), "variable", state_->name()));
    std::array<int64_t, 2 * kMaxRank> dims = {};
    auto end = dims.begin();
    for (const auto part : {c.input(1).shape().dims(), table.shape().dims().subspan(1)}) {
      end = std::copy(part.begin(), part.end(), end);
    }
    std::string why;
    const auto shape = Shape::Make(std::span(dims.begin(), end), &why);
    if (!shape) return InvalidArgument("the result is too large: {}", why);
    return SetShape(c, 0, *shape);
  }

  // Copies rows from number `first` on; returns the number of the next. REQUIRES: the lock is held.
  static int64_t CopyBatch(KernelContext& c, const RowIndices& indices, const Tensor& table,
                           int64_t first) {
    Tensor& output = c.output(0);
    if (output.bytes() == 0) return indices.size();
    const int64_t row = int64_t(output.bytes()) / indices.size();
    const int64_t grain = DivideRoundUp(kBytesPerCore, row);
    const int64_t last = std::min(indices.size(), first + grain * c.team().cores());
    const auto* const from = static_cast<const std::byte*>(table.raw());
    auto* const to = static_cast<std::byte*>(output.raw());
    c.team().ParallelFor(last - first, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        std::memcpy(to + i * row, from + indices[i] * row, size_t(row));
      }
    });
    return last;
  }

  std::shared_ptr<VariableState> state_;
  ValueType declared_;
  Shape shape_;
};

}  // namespace

void RegisterGatherRowsCpuKernels(KernelRegistry& registry) {
  AddKernel<GatherRowsKernel>(registry, "_GatherRows", "cpu");
}

}  // namespace tutti
