// Rows at indices that may repeat are divided by columns: each core goes through all indices in
// order and changes its part of every row, so that no two cores write one element, and the result
// is the same for any number of cores.
#include "tutti/kernels/update/accumulate_kernel.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tutti/base/checked.h"
#include "tutti/kernels/update/row_indices.h"
#include "tutti/kernels/update/variable_access.h"

namespace tutti {
namespace {

constexpr int64_t kElementsPerCore = 16384;  // fewer are not worth another core
constexpr int64_t kLine = 64;                // narrower parts would share cache lines

class AccumulateKernel final : public Kernel {
 public:
  AccumulateKernel(bool subtract, AccumulateFunction accumulate)
      : subtract_(subtract), accumulate_(accumulate) {}

  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().input(0), c.device()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(1);
    return state_->Modify([&](Tensor& stored) -> absl::Status {
      TUTTI_RETURN_IF_ERROR(CheckDeclared(*state_, stored, {value.dtype(), value.shape()}));
      const auto size = int64_t(SizeOf(stored.dtype()));
      auto* const to = static_cast<std::byte*>(stored.raw());
      const auto* const from = static_cast<const std::byte*>(value.raw());
      c.team().ParallelFor(stored.elements(), kElementsPerCore, [&](int64_t begin, int64_t end) {
        accumulate_(stored.dtype(), subtract_, to + begin * size, from + begin * size, end - begin);
      });
      if (c.output_consumed(0)) c.SetOutput(0, stored);
      return absl::OkStatus();
    });
  }

 private:
  const bool subtract_;
  const AccumulateFunction accumulate_;
  std::shared_ptr<VariableState> state_;
};

enum class Scatter { kAdd, kSub, kUpdate };

class ScatterKernel final : public Kernel {
 public:
  ScatterKernel(Scatter how, AccumulateFunction accumulate) : how_(how), accumulate_(accumulate) {}

  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().input(0), c.device()));
    state_->MarkUpdatedByRows();
    declared_ = {c.node().input(0).dtype(), c.node().input(0).shape()};
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const RowIndices indices(c.input(1));
    const Tensor& rows = c.input(2);
    std::lock_guard lock(state_->mutex());
    if (state_->value_locked().valid()) {
      const Tensor& stored = state_->value_locked();
      TUTTI_RETURN_IF_ERROR(CheckDeclared(*state_, stored, declared_));
      TUTTI_RETURN_IF_ERROR(indices.CheckRange(stored.shape(), "variable", state_->name()));
      TUTTI_RETURN_IF_ERROR(indices.CheckRows(stored.shape(), rows.shape()));
    }
    TUTTI_RETURN_IF_ERROR(state_->MakeWritable());
    Tensor& stored = state_->value_locked();
    const int64_t width = RowWidth(stored.shape());
    if (width > 0 && indices.size() > 0) {
      const int64_t grain = std::max(kLine / int64_t(SizeOf(stored.dtype())),
                                     DivideRoundUp(kElementsPerCore, indices.size()));
      c.team().ParallelFor(width, grain, [&](int64_t begin, int64_t end) {
        ScatterColumns(indices, rows, stored, width, begin, end);
      });
    }
    if (c.output_consumed(0)) c.SetOutput(0, stored);
    return absl::OkStatus();
  }

 private:
  // Columns [begin, end) of every row.
  void ScatterColumns(const RowIndices& indices, const Tensor& rows, Tensor& stored, int64_t width,
                      int64_t begin, int64_t end) const {
    const auto size = int64_t(SizeOf(stored.dtype()));
    const auto* from = static_cast<const std::byte*>(rows.raw()) + begin * size;
    auto* const base = static_cast<std::byte*>(stored.raw()) + begin * size;
    for (int64_t i = 0; i < indices.size(); ++i, from += width * size) {
      std::byte* const to = base + indices[i] * width * size;
      if (how_ == Scatter::kUpdate) {
        std::memcpy(to, from, size_t((end - begin) * size));
      } else {
        accumulate_(stored.dtype(), how_ == Scatter::kSub, to, from, end - begin);
      }
    }
  }

  const Scatter how_;
  const AccumulateFunction accumulate_;
  std::shared_ptr<VariableState> state_;
  ValueType declared_;
};

}  // namespace

void AddAccumulateKernels(KernelRegistry& registry, std::string_view kind,
                          const std::vector<DType>& dtypes, AccumulateFunction accumulate) {
  const auto add = [&](const char* op, auto make) {
    registry.Add({.op = op, .kind = std::string(kind), .dtypes = dtypes, .make = std::move(make)});
  };
  for (const bool subtract : {false, true}) {
    add(subtract ? "AssignSub" : "AssignAdd", [subtract, accumulate] {
      return std::make_unique<AccumulateKernel>(subtract, accumulate);
    });
  }
  const auto add_scatter = [&](const char* op, Scatter how) {
    add(op, [how, accumulate] { return std::make_unique<ScatterKernel>(how, accumulate); });
  };
  add_scatter("ScatterAdd", Scatter::kAdd);
  add_scatter("ScatterSub", Scatter::kSub);
  add_scatter("ScatterUpdate", Scatter::kUpdate);
}

}  // namespace tutti
