// The three kernels of an update.
//
// Dense: one pass over variable, slots and gradient. Sparse: positions are grouped by row number
// (row_groups.h), in the order in which they were given; each group is summed, a block of columns
// at a time, and applied once. A table is larger than the caches, so its rows are asked for some
// groups ahead. It is done in batches, each under the locks of variable and slots: the update of a
// row is atomic, that of all rows is not. Fused: the ranges of all updates are laid end to end and
// split among the cores as one list, so that many small variables cost one node.
#include "tutti/kernels/update/update_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tutti/kernels/update/row_groups.h"
#include "tutti/kernels/update/row_indices.h"
#include "tutti/kernels/update/variable_access.h"

namespace tutti {
namespace {

constexpr int kMostReferences = 3;

// Elements below which a second core does not pay: 16 Ki elements of Adam take some 8 us.
constexpr int64_t kGrain = 16384;

// Elements that are copied before they are updated: with two slots and the gradient 64 KiB.
constexpr int64_t kCopiedBlock = 4096;
constexpr int64_t kCopiedBytes = 1 << 20;  // fewer are not worth another core

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

  // Copies what somebody holds, with all cores: a table may be large.
  absl::Status MakeWritable(const Team& team, std::array<void*, kMostReferences>& data) const {
    for (int i = 0; i < count; ++i) {
      TUTTI_ASSIGN_OR_RETURN(const Tensor old, states[i]->MakeFresh());
      data[i] = states[i]->value_locked().raw();
      if (!old.valid()) continue;
      team.ParallelFor(int64_t(old.bytes()), kCopiedBytes, [&](int64_t begin, int64_t end) {
        std::memcpy(static_cast<std::byte*>(data[i]) + begin,
                    static_cast<const std::byte*>(old.raw()) + begin, size_t(end - begin));
      });
    }
    return absl::OkStatus();
  }
};

// Where the elements of a variable and its slots are, and where they have to be copied from before
// they change (null: they are there).
struct Elements {
  std::array<void*, kMostReferences> data = {};
  std::array<const void*, kMostReferences> from = {};
  bool copied = false;  // is any of `from` given?
};

// The values that a save holds while an update changes them. The update copies them block by block
// on its way through memory, which costs little more than the update itself.
class HeldValues {
 public:
  // Makes all of a target's values safe to change. After an error all values are as they were.
  absl::Status Add(const Target& target, Elements& elements) {
    elements = {};
    for (int i = 0; i < target.count; ++i) {
      absl::StatusOr<Tensor> old = target.states[i]->MakeFresh();
      if (!old.ok()) {
        for (auto& [state, value] : values_) state->value_locked() = std::move(value);
        values_.clear();
        return old.status();
      }
      elements.data[i] = target.states[i]->value_locked().raw();
      if (!old->valid()) continue;
      elements.from[i] = old->raw();
      elements.copied = true;
      values_.emplace_back(target.states[i], *std::move(old));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<VariableState*, Tensor>> values_;
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
void RunRange(UpdateFunction function, const UpdateParameters& p, const Elements& elements,
              const void* gradient, size_t size, int64_t begin, int64_t end) {
  // What is copied is still in the core's cache when it is updated.
  const int64_t block = elements.copied ? kCopiedBlock : end - begin;
  for (int64_t first = begin; first < end; first += block) {
    const int64_t last = std::min(end, first + block);
    const size_t offset = size_t(first) * size;
    std::array<void*, kMostReferences> state = {};
    for (int i = 0; i < kMostReferences; ++i) {
      if (elements.data[i] == nullptr) continue;
      state[i] = static_cast<std::byte*>(elements.data[i]) + offset;
      if (elements.from[i] == nullptr) continue;
      std::memcpy(state[i], static_cast<const std::byte*>(elements.from[i]) + offset,
                  size_t(last - first) * size);
    }
    function(p, state.data(), static_cast<const std::byte*>(gradient) + offset, last - first);
  }
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
      HeldValues held;
      Elements elements;
      TUTTI_RETURN_IF_ERROR(held.Add(target_, elements));
      const size_t size = SizeOf(gradient.dtype());
      c.team().ParallelFor(gradient.elements(), kGrain, [&](int64_t begin, int64_t end) {
        RunRange(function_, p, elements, gradient.raw(), size, begin, end);
      });
    }
    GiveValue(c);
    return absl::OkStatus();
  }
};

// The sum of the rows of `rows` that `group` names, columns [begin, end), in its order. 16-bit
// types are summed in float.
template <typename T>
void SumRows(const T* rows, int64_t width, std::span<const RowGroups::Entry> group, int64_t begin,
             int64_t end, T* sum) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t column = begin; column < end; ++column) {
    Wide total = 0;
    for (const RowGroups::Entry& entry : group)
      total += Wide(rows[entry.position * width + column]);
    sum[column - begin] = T(total);
  }
}

class SparseUpdateKernel final : public UpdateKernelBase {
 public:
  using UpdateKernelBase::UpdateKernelBase;

  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_RETURN_IF_ERROR(UpdateKernelBase::Prepare(c));
    for (const auto& state : states_) state->MarkUpdatedByRows();
    return absl::OkStatus();
  }

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
        next = groups_.size();
      }
      if (next < groups_.size()) continue;
      GiveValue(c);
      return absl::OkStatus();
    }
  }

 private:
  void GroupByRow(const RowIndices& indices) {
    groups_.Begin(indices.size());
    for (int64_t i = 0; i < indices.size(); ++i) groups_.Add(indices[i]);
    groups_.Find();
  }

  // Applies groups from number `begin` on, so many that look-ups of other rows do not wait for long
  // (gather_rows.cc); returns the number of the next. REQUIRES: variable and slots are locked.
  absl::StatusOr<int64_t> ApplyBatch(KernelContext& c, const UpdateParameters& p,
                                     const Tensor& rows, int64_t width, int64_t begin) const {
    std::array<void*, kMostReferences> data = {};
    TUTTI_RETURN_IF_ERROR(target_.MakeWritable(c.team(), data));
    const int64_t grain = std::max<int64_t>(1, kGrain / width);
    const int64_t end = std::min(groups_.size(), begin + 4 * grain * c.team().cores());
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
        if (g + kAhead < from + last) {
          for (int i = 0; i < target_.count; ++i) {
            __builtin_prefetch(static_cast<T*>(data[i]) + groups_.row(g + kAhead) * width, 1);
          }
        }
        const std::span<const RowGroups::Entry> group = groups_.entries(g);
        const int64_t base = group[0].row * width;
        std::array<void*, kMostReferences> state = {};
        const auto at = [&](int64_t column) {
          for (int i = 0; i < target_.count; ++i) {
            state[i] = static_cast<T*>(data[i]) + base + column;
          }
          return state.data();
        };
        if (group.size() == 1) {
          function_(p, at(0), rows + group[0].position * width, width);
          continue;
        }
        for (int64_t begin = 0; begin < width; begin += kColumns) {
          const int64_t end = std::min(width, begin + kColumns);
          SumRows(rows, width, group, begin, end, sum.data());
          function_(p, at(begin), sum.data(), end - begin);
        }
      }
    });
  }

  static constexpr int64_t kAhead = 8;  // groups: some 200 ns, as long as a line takes to come

  RowGroups groups_;
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
    HeldValues held;
    for (int i = 0; i < updates; ++i) {
      Segment& segment = segments_[i];
      segment.begin = total;
      segment.gradient = gradient(i).raw();
      TUTTI_RETURN_IF_ERROR(held.Add(targets_[i], segment.elements));
      total += gradient(i).elements();
      segment.end = total;
    }
    const size_t size = SizeOf(c.input(0).dtype());
    c.team().ParallelFor(total, kGrain, [&](int64_t begin, int64_t end) {
      auto segment = std::upper_bound(segments_.begin(), segments_.end(), begin,
                                      [](int64_t at, const Segment& s) { return at < s.end; });
      for (; segment != segments_.end() && segment->begin < end; ++segment) {
        RunRange(function_, p, segment->elements, segment->gradient, size,
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
    Elements elements;
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
