// The three kernels of an update.
//
// Dense: one pass over variable, slots and gradient. Sparse: positions are sorted by row number, so
// that rows of one number stand together, in the order in which they were given; each such group is
// summed, a block of columns at a time, and applied once. It is done in batches, each under the
// locks of variable and slots: the update of a row is atomic, that of all rows is not. Fused: the
// ranges of all updates are laid end to end and split among the cores as one list, so that many
// small variables cost one node.
#include "tutti/kernels/update_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tutti/kernels/row_indices.h"
#include "tutti/kernels/variable_access.h"

namespace tutti {
namespace {

constexpr int kMostReferences = 3;

// Elements below which a second core does not pay: 16 Ki elements of Adam take some 8 us.
constexpr int64_t kGrain = 16384;

absl::StatusOr<double> ScalarValue(const Tensor& tensor, std::string_view name) {
  if (tensor.elements() != 1) {
    return InvalidArgument("{} is {}; expected a scalar", name, tensor.shape().ToString());
  }
  double value = 0;
  VisitDType(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      value = double(float(*tensor.data<T>()));
    } else {
      value = double(*tensor.data<T>());
    }
  });
  return value;
}

// The attributes of an update (those that its rule has), fixed when the plan is made.
UpdateParameters FixedParameters(const Node& node) {
  UpdateParameters p;
  const auto number = [&](const char* name, double& to) {
    if (node.HasAttr(name)) to = node.attr<double>(name);
  };
  number("momentum", p.momentum);
  number("epsilon", p.epsilon);
  number("rho", p.rho);
  number("beta1", p.beta1);
  number("beta2", p.beta2);
  number("weight_decay", p.weight_decay);
  number("l1", p.l1);
  number("l2", p.l2);
  number("beta", p.beta);
  if (node.HasAttr("nesterov")) p.nesterov = node.attr<bool>("nesterov");
  return p;
}

// Completes `p` with what is known only now. Null: that scalar is not given.
absl::Status ReadScalars(const UpdateOp& op, const Tensor& learning_rate, const Tensor* step,
                         const Tensor* scale, UpdateParameters& p) {
  TUTTI_ASSIGN_OR_RETURN(p.learning_rate, ScalarValue(learning_rate, "learning_rate"));
  if (op.rule == UpdateRule::kFtrl && !(p.learning_rate > 0)) {
    return InvalidArgument("learning_rate is {}; {} divides by it and needs a positive one",
                           p.learning_rate, op.name);
  }
  if (step != nullptr) {
    TUTTI_ASSIGN_OR_RETURN(const double number, ScalarValue(*step, "step"));
    if (!(number >= 1)) {
      return InvalidArgument("step is {}; the first update has step 1", number);
    }
    p.correction1 = 1 - std::pow(p.beta1, number);
    p.correction2 = 1 - std::pow(p.beta2, number);
  }
  if (scale != nullptr) {
    TUTTI_ASSIGN_OR_RETURN(p.scale, ScalarValue(*scale, "scale"));
  }
  return absl::OkStatus();
}

// One variable with its slots.
struct Target {
  std::array<VariableState*, kMostReferences> states = {};
  int count = 0;

  // Checks dtype and shape of all of them. REQUIRES: they are locked.
  absl::Status Check(const ValueType& expected) const {
    for (int i = 0; i < count; ++i) {
      const Tensor& value = states[i]->value_locked();
      if (!value.valid()) {
        return FailedPrecondition(
            "variable \"{}\" has no value yet; call Session::Initialize() or Assign first",
            states[i]->name());
      }
      TUTTI_RETURN_IF_ERROR(CheckDeclared(*states[i], value, expected));
    }
    return absl::OkStatus();
  }

  absl::Status MakeWritable(std::array<void*, kMostReferences>& data) const {
    for (int i = 0; i < count; ++i) {
      TUTTI_RETURN_IF_ERROR(states[i]->MakeWritable());
      data[i] = states[i]->value_locked().raw();
    }
    return absl::OkStatus();
  }
};

class UpdateKernelBase : public Kernel {
 public:
  UpdateKernelBase(const UpdateOp& op, UpdateFunctionTable table) : op_(op), table_(table) {}

  absl::Status Prepare(PrepareContext& c) override {
    states_.clear();
    for (int i = 0; i < op_.references(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(auto state, VariableOf(c.node().input(i), c.device()));
      states_.push_back(std::move(state));
    }
    TUTTI_ASSIGN_OR_RETURN(lock_order_, LockOrder(states_));
    target_.count = op_.references();
    for (int i = 0; i < target_.count; ++i) target_.states[i] = states_[i].get();
    const DType dtype = c.node().input(0).dtype();
    function_ = table_(op_.rule, dtype);
    if (function_ == nullptr) return Internal("no loop for {}", NameOf(dtype));
    fixed_ = FixedParameters(c.node());
    return absl::OkStatus();
  }

 protected:
  absl::StatusOr<UpdateParameters> Parameters(const KernelContext& c, int after_gradient) const {
    UpdateParameters p = fixed_;
    TUTTI_RETURN_IF_ERROR(
        ReadScalars(op_, c.input(op_.learning_rate_input()),
                    op_.takes_step ? &c.input(op_.step_input()) : nullptr,
                    c.num_inputs() > after_gradient ? &c.input(after_gradient) : nullptr, p));
    return p;
  }

  // REQUIRES: the variable is locked.
  void GiveValue(KernelContext& c) const {
    if (c.output_consumed(0)) c.SetOutput(0, target_.states[0]->value_locked());
  }

  const UpdateOp& op_;
  const UpdateFunctionTable table_;
  std::vector<std::shared_ptr<VariableState>> states_;
  std::vector<VariableState*> lock_order_;
  Target target_;
  UpdateFunction function_ = nullptr;
  UpdateParameters fixed_;
};

// Calls `function` for the elements [begin, end).
void RunRange(UpdateFunction function, const UpdateParameters& p,
              const std::array<void*, kMostReferences>& data, const void* gradient, size_t size,
              int64_t begin, int64_t end) {
  std::array<void*, kMostReferences> state = {};
  for (int i = 0; i < kMostReferences; ++i) {
    if (data[i] != nullptr) state[i] = static_cast<std::byte*>(data[i]) + size_t(begin) * size;
  }
  function(p, state.data(), static_cast<const std::byte*>(gradient) + size_t(begin) * size,
           end - begin);
}

class DenseUpdateKernel final : public UpdateKernelBase {
 public:
  using UpdateKernelBase::UpdateKernelBase;

  absl::Status Compute(KernelContext& c) override {
    const Tensor& gradient = c.input(op_.gradient_input());
    TUTTI_ASSIGN_OR_RETURN(const UpdateParameters p, Parameters(c, op_.gradient_input() + 1));
    const VariableLocks locks(lock_order_);
    TUTTI_RETURN_IF_ERROR(target_.Check({gradient.dtype(), gradient.shape()}));
    if (p.scale != 0) {
      std::array<void*, kMostReferences> data = {};
      TUTTI_RETURN_IF_ERROR(target_.MakeWritable(data));
      const size_t size = SizeOf(gradient.dtype());
      c.team().ParallelFor(gradient.elements(), kGrain, [&](int64_t begin, int64_t end) {
        RunRange(function_, p, data, gradient.raw(), size, begin, end);
      });
    }
    GiveValue(c);
    return absl::OkStatus();
  }
};

// The sum of the rows positions[0..count) of `rows`, columns [begin, end), in that order. 16-bit
// types are summed in float.
template <typename T>
void SumRows(const T* rows, int64_t width, const std::pair<int64_t, int64_t>* group, int64_t count,
             int64_t begin, int64_t end, T* sum) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t column = begin; column < end; ++column) {
    Wide total = 0;
    for (int64_t i = 0; i < count; ++i) total += Wide(rows[group[i].second * width + column]);
    sum[column - begin] = T(total);
  }
}

class SparseUpdateKernel final : public UpdateKernelBase {
 public:
  using UpdateKernelBase::UpdateKernelBase;

  absl::Status Compute(KernelContext& c) override {
    const RowIndices indices(c.input(op_.gradient_input()));
    const Tensor& rows = c.input(op_.gradient_input() + 1);
    TUTTI_ASSIGN_OR_RETURN(const UpdateParameters p, Parameters(c, op_.gradient_input() + 2));
    GroupByRow(indices);
    Shape shape;
    for (int64_t next = 0;;) {
      const VariableLocks locks(lock_order_);
      const Tensor& value = target_.states[0]->value_locked();
      if (next > 0 && value.shape() != shape) {
        return Aborted("variable \"{}\" got another shape while its rows were updated",
                       target_.states[0]->name());
      }
      shape = value.valid() ? value.shape() : Shape{};
      TUTTI_RETURN_IF_ERROR(target_.Check({rows.dtype(), shape}));
      if (next == 0) {
        TUTTI_RETURN_IF_ERROR(indices.CheckRange(shape, "variable", target_.states[0]->name()));
        TUTTI_RETURN_IF_ERROR(indices.CheckRows(shape, rows.shape()));
      }
      if (p.scale != 0 && rows.elements() > 0) {
        TUTTI_ASSIGN_OR_RETURN(next, ApplyBatch(c, p, rows, RowWidth(shape), next));
      } else {
        next = groups();
      }
      if (next < groups()) continue;
      GiveValue(c);
      return absl::OkStatus();
    }
  }

 private:
  void GroupByRow(const RowIndices& indices) {
    // Both vectors keep their memory, so a steady step allocates nothing.
    entries_.clear();
    group_begins_.clear();
    for (int64_t i = 0; i < indices.size(); ++i) entries_.emplace_back(indices[i], i);
    std::sort(entries_.begin(), entries_.end());
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (i == 0 || entries_[i].first != entries_[i - 1].first) group_begins_.push_back(int64_t(i));
    }
    group_begins_.push_back(int64_t(entries_.size()));
  }
  int64_t groups() const { return int64_t(group_begins_.size()) - 1; }

  // Applies groups from number `begin` on, so many that look-ups of other rows do not wait for long
  // (gather_rows.cc); returns the number of the next. REQUIRES: variable and slots are locked.
  absl::StatusOr<int64_t> ApplyBatch(KernelContext& c, const UpdateParameters& p,
                                     const Tensor& rows, int64_t width, int64_t begin) const {
    std::array<void*, kMostReferences> data = {};
    TUTTI_RETURN_IF_ERROR(target_.MakeWritable(data));
    const int64_t grain = std::max<int64_t>(1, kGrain / width);
    const int64_t end = std::min(groups(), begin + 4 * grain * c.team().cores());
    VisitDType(rows.dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                    std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
        Apply<T>(c, p, data, rows.data<T>(), width, begin, end);
      }
    });
    return end;
  }

  template <typename T>
  void Apply(KernelContext& c, const UpdateParameters& p,
             const std::array<void*, kMostReferences>& data, const T* rows, int64_t width,
             int64_t from, int64_t to) const {
    constexpr int64_t kColumns = 256;
    const int64_t grain = std::max<int64_t>(1, kGrain / width);
    c.team().ParallelFor(to - from, grain, [&](int64_t first, int64_t last) {
      std::array<T, kColumns> sum;
      for (int64_t g = from + first; g < from + last; ++g) {
        const auto* const group = entries_.data() + group_begins_[g];
        const int64_t count = group_begins_[g + 1] - group_begins_[g];
        const int64_t base = group->first * width;
        std::array<void*, kMostReferences> state = {};
        const auto at = [&](int64_t column) {
          for (int i = 0; i < target_.count; ++i) {
            state[i] = static_cast<T*>(data[i]) + base + column;
          }
          return state.data();
        };
        if (count == 1) {
          function_(p, at(0), rows + group->second * width, width);
          continue;
        }
        for (int64_t begin = 0; begin < width; begin += kColumns) {
          const int64_t end = std::min(width, begin + kColumns);
          SumRows(rows, width, group, count, begin, end, sum.data());
          function_(p, at(begin), sum.data(), end - begin);
        }
      }
    });
  }

  std::vector<std::pair<int64_t, int64_t>> entries_;  // (row number, position), sorted
  std::vector<int64_t> group_begins_;                 // of equal row numbers, and the end
};

class FusedUpdateKernel final : public Kernel {
 public:
  FusedUpdateKernel(const UpdateOp& op, UpdateFunctionTable table) : op_(op), table_(table) {}

  absl::Status Prepare(PrepareContext& c) override {
    const Node& node = c.node();
    states_.clear();
    targets_.clear();
    for (int i = op_.fused_scalars(); i < node.num_inputs(); ++i) {
      const int place = (i - op_.fused_scalars()) % (op_.references() + 1);
      if (place == op_.references()) continue;  // the gradient
      if (place == 0) targets_.emplace_back();
      TUTTI_ASSIGN_OR_RETURN(auto state, VariableOf(node.input(i), c.device()));
      targets_.back().states[targets_.back().count++] = state.get();
      states_.push_back(std::move(state));
    }
    TUTTI_ASSIGN_OR_RETURN(lock_order_, LockOrder(states_));
    segments_.resize(targets_.size());
    const DType dtype = node.input(0).dtype();  // all inputs have one
    function_ = table_(op_.rule, dtype);
    if (function_ == nullptr) return Internal("no loop for {}", NameOf(dtype));
    fixed_ = FixedParameters(node);
    scaled_ = node.attr<bool>("scaled");
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const int updates = int(targets_.size());
    UpdateParameters p = fixed_;
    TUTTI_RETURN_IF_ERROR(ReadScalars(op_, c.input(0), op_.takes_step ? &c.input(2) : nullptr,
                                      scaled_ ? &c.input(1) : nullptr, p));
    const auto gradient = [&](int i) -> const Tensor& {
      return c.input(op_.fused_scalars() + (i + 1) * (op_.references() + 1) - 1);
    };
    const VariableLocks locks(lock_order_);
    for (int i = 0; i < updates; ++i) {
      TUTTI_RETURN_IF_ERROR(targets_[i].Check({gradient(i).dtype(), gradient(i).shape()}));
    }
    if (p.scale == 0) return absl::OkStatus();
    int64_t total = 0;
    for (int i = 0; i < updates; ++i) {
      Segment& segment = segments_[i];
      segment.begin = total;
      segment.gradient = gradient(i).raw();
      TUTTI_RETURN_IF_ERROR(targets_[i].MakeWritable(segment.data));
      total += gradient(i).elements();
      segment.end = total;
    }
    const size_t size = SizeOf(c.input(0).dtype());
    c.team().ParallelFor(total, kGrain, [&](int64_t begin, int64_t end) {
      auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                      [](int64_t at, const Segment& s) { return at < s.end; });
      for (; segment != segments_.end() && segment->begin < end; ++segment) {
        RunRange(function_, p, segment->data, segment->gradient, size,
                 std::max(begin, segment->begin) - segment->begin,
                 std::min(end, segment->end) - segment->begin);
      }
    });
    return absl::OkStatus();
  }

 private:
  // One update's place in the list of all their elements.
  struct Segment {
    int64_t begin = 0;
    int64_t end = 0;
    std::array<void*, kMostReferences> data = {};
    const void* gradient = nullptr;
  };

  const UpdateOp& op_;
  const UpdateFunctionTable table_;
  std::vector<std::shared_ptr<VariableState>> states_;
  std::vector<VariableState*> lock_order_;
  std::vector<Target> targets_;
  std::vector<Segment> segments_;
  UpdateFunction function_ = nullptr;
  UpdateParameters fixed_;
  bool scaled_ = false;
};

}  // namespace

void AddUpdateKernels(KernelRegistry& registry, std::string_view kind, std::vector<DType> dtypes,
                      UpdateFunctionTable table) {
  for (const UpdateOp& op : UpdateOps()) {
    registry.Add({.op = op.name, .kind = std::string(kind), .dtypes = dtypes, .make = [&op, table] {
                    return std::make_unique<DenseUpdateKernel>(op, table);
                  }});
    registry.Add(
        {.op = op.name + "Sparse",
         .kind = std::string(kind),
         .dtypes = dtypes,
         .make = [&op, table] { return std::make_unique<SparseUpdateKernel>(op, table); }});
    registry.Add(
        {.op = op.fused_name(), .kind = std::string(kind), .dtypes = dtypes, .make = [&op, table] {
           return std::make_unique<FusedUpdateKernel>(op, table);
         }});
  }
}

}  // namespace tutti
