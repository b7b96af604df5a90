// The kernels of AllReduce, Broadcast and AllGather. A kernel starts an operation of the
// communicator and is done when the operation is. The lane polls the communicator between nodes
// (executor.cc), so the lane does the summing, and communication overlaps with computation.
//
// A bucket whose values the plan has put side by side in registered memory (place_buckets.cc) is
// reduced where it lies. Otherwise, without passes or with shapes that only the run can tell, its
// values are packed into a buffer of the kernel's.
//
// A step that is cancelled or out of time cannot withdraw from an operation: peers may be reading
// its data, and their step counts for this key would differ from then on. So it ends the
// communicator for all ranks, with its reason, and says so.
#include <cstring>

#include "tutti/device/kernel.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/runtime/collectives.h"
#include "tutti/runtime/register.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

using collective::CallOptions;
using collective::Group;
using collective::Handle;
using collective::Wire;

Wire WireOf(const std::string& name) {
  if (name == "bfloat16") return Wire::kBFloat16;
  return name == "float16" ? Wire::kFloat16 : Wire::kAsIs;
}

void EndCommunicator(collective::Communicator& communicator, const absl::Status& reason) {
  communicator.Abort(
      absl::Status(reason.code(),
                   fmt::format("rank {} ended a step in the middle of an operation, which ends the "
                               "communicator of every rank: {}",
                               communicator.rank(), MessageOf(reason))));
}

// What all collective kernels share: the group, how operations are called, how they end.
class CollectiveKernel : public AsyncKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Node& node = context.node();
    const auto& key = node.attr<std::string>("key");
    key_ = key.empty() ? node.name() : key;
    algorithm_ = node.attr<std::string>("algorithm");
    wire_ = WireOf(node.attr<std::string>("wire"));
    root_ = node.FindAttr("root") == nullptr ? 0 : int(node.attr<int64_t>("root"));
    return absl::OkStatus();
  }
  // Asked of a step that is being ended.
  std::string Awaited(const KernelContext&) const override {
    return fmt::format(
        "the other ranks, operation \"{}\"; ending it has ended the communicator on every rank, so "
        "make a new one to go on",
        key_);
  }

 protected:
  CallOptions Call() const {
    return {.key = key_, .algorithm = algorithm_, .wire = wire_, .root = root_};
  }
  const std::string& key() const { return key_; }

  absl::StatusOr<Group*> GroupOf(const KernelContext& context) {
    if (group_ != nullptr) return group_;
    Collectives* const collectives = context.step->collectives;
    if (collectives == nullptr) {
      return FailedPrecondition(
          "this session has no communicator; collectives need one (--strategy allreduce, or "
          "SessionOptions::communicator)");
    }
    TUTTI_ASSIGN_OR_RETURN(group_,
                           collectives->FindGroup(context.node->attr<std::string>("group")));
    communicator_ = &collectives->communicator();
    return group_;
  }

  // The node is done when the operation is.
  void FinishWith(const Handle& handle, KernelContext& context) {
    WatchCancellation(context);
    handle.OnDone([this, &context](const absl::Status& status) { Finish(context, status); });
  }
  void Finish(KernelContext& context, const absl::Status& status) {
    StopWatching(context);
    context.completion->NodeDone(context.index, status);
  }

  // Between the two, a step that is cancelled ends the operation that it waits for.
  void StopWatching(KernelContext& context) { context.cancellation().Forget(on_cancel_); }
  void WatchCancellation(KernelContext& context) {
    on_cancel_ = context.cancellation().Register(
        [communicator = communicator_, &cancellation = context.cancellation()] {
          EndCommunicator(*communicator, cancellation.status());
        });
    if (on_cancel_ == Cancellation::kNone) {
      EndCommunicator(*communicator_, context.cancellation().status());
    }
  }

 private:
  std::string key_;
  std::string algorithm_;
  Wire wire_ = Wire::kAsIs;
  int root_ = 0;
  Group* group_ = nullptr;
  collective::Communicator* communicator_ = nullptr;
  Cancellation::Handle on_cancel_ = Cancellation::kNone;
};

// AllReduce and Broadcast: several values that travel as one.
template <Handle (Group::*Operation)(void*, int64_t, DType, const CallOptions&)>
class BucketKernel final : public CollectiveKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    inputs_joined_ = context.inputs_joined();
    return CollectiveKernel::Prepare(context);
  }

  void Start(KernelContext& context) override {
    const auto group = GroupOf(context);
    if (!group.ok() || context.num_inputs() == 0) {
      context.completion->NodeDone(context.index, group.status());
      return;
    }
    if (offsets_.empty() || !SameTypes(context)) FindOffsets(context);
    void* bucket = InPlace(context);
    if (bucket == nullptr) {
      if (const absl::Status status = Pack(context); !status.ok()) {
        context.completion->NodeDone(context.index, status);
        return;
      }
      bucket = packed_.raw();
    }
    const DType dtype = context.input(0).dtype();
    const int64_t count = offsets_.back() / int64_t(SizeOf(dtype));
    FinishWith(((*group)->*Operation)(bucket, count, dtype, Call()), context);
  }

 private:
  bool SameTypes(const KernelContext& context) const {
    for (int i = 0; i < context.num_inputs(); ++i) {
      if (types_[size_t(i)].shape != context.input(i).shape()) return false;
    }
    return true;
  }

  void FindOffsets(const KernelContext& context) {
    types_.clear();
    for (int i = 0; i < context.num_inputs(); ++i) {
      types_.push_back({context.input(i).dtype(), context.input(i).shape()});
    }
    offsets_ = BucketOffsets(types_);
  }

  // Where the values lie side by side already, and room follows the last; else null. Outputs are
  // the inputs then.
  void* InPlace(KernelContext& context) const {
    if (!inputs_joined_) return nullptr;
    const Tensor& first = context.input(0);
    const auto* begin = static_cast<const std::byte*>(first.raw());
    for (int i = 1; i < context.num_inputs(); ++i) {
      if (context.input(i).raw() != begin + offsets_[size_t(i)]) return nullptr;
    }
    for (int i = 0; i < context.num_inputs(); ++i) context.SetOutput(i, context.input(i));
    return const_cast<std::byte*>(begin);
  }

  absl::Status Pack(KernelContext& context) {
    const int64_t bytes = std::max<int64_t>(offsets_.back(), 1);
    // A fresh one for each run: what was handed out may still be held.
    TUTTI_ASSIGN_OR_RETURN(packed_, context.device().pool().Allocate(kUInt8, Shape{bytes}));
    std::memset(packed_.raw(), 0, size_t(bytes));
    for (int i = 0; i < context.num_inputs(); ++i) {
      const Tensor& value = context.input(i);
      const auto offset = size_t(offsets_[size_t(i)]);
      if (value.bytes() > 0) {
        std::memcpy(static_cast<std::byte*>(packed_.raw()) + offset, value.raw(), value.bytes());
      }
      context.SetOutput(i, Tensor(value.dtype(), value.shape(), packed_.buffer(), offset));
    }
    return absl::OkStatus();
  }

  bool inputs_joined_ = false;
  std::vector<ValueType> types_;
  std::vector<int64_t> offsets_;
  Tensor packed_;
};

// The rows of all ranks. First their numbers, then the rows.
class AllGatherKernel final : public CollectiveKernel {
 public:
  void Start(KernelContext& context) override {
    const auto group = GroupOf(context);
    if (!group.ok()) {
      context.completion->NodeDone(context.index, group.status());
      return;
    }
    gather_group_ = *group;
    counts_.assign(size_t(gather_group_->size()), 0);
    counts_[size_t(gather_group_->rank())] = context.input(0).shape().dim(0);
    CallOptions call = Call();
    const std::string count_key = key() + "/rows";
    call.key = count_key;
    call.wire = Wire::kAsIs;
    const Handle handle = gather_group_->AllGather(counts_.data(), 1, kInt64, call);
    WatchCancellation(context);
    handle.OnDone([this, &context](const absl::Status& status) {
      if (!status.ok()) return Finish(context, status);
      StopWatching(context);
      GatherRows(context);
    });
  }

 private:
  void GatherRows(KernelContext& context) {
    const Tensor& rows = context.input(0);
    const Shape& shape = rows.shape();
    int64_t total = 0, before = 0;
    for (size_t r = 0; r < counts_.size(); ++r) {
      if (int(r) < gather_group_->rank()) before += counts_[r];
      total += counts_[r];
    }
    if (const absl::Status status = context.AllocateOutput(0, shape.WithDim(0, total));
        !status.ok()) {
      context.completion->NodeDone(context.index, status);
      return;
    }
    // An empty tensor may have rows of any width.
    const int64_t row_elements = total == 0 ? 0 : ProductOf(shape.dims().subspan(1));
    for (int64_t& count : counts_) count *= row_elements;
    auto* all = static_cast<std::byte*>(context.output(0).raw());
    if (rows.bytes() > 0) {
      const size_t offset = size_t(before * row_elements) * SizeOf(rows.dtype());
      std::memcpy(all + offset, rows.raw(), rows.bytes());
    }
    FinishWith(gather_group_->AllGatherV(all, counts_, rows.dtype(), Call()), context);
  }

  Group* gather_group_ = nullptr;
  std::vector<int64_t> counts_;
};

absl::Status Copy(KernelContext& context) {
  const Tensor& value = context.input(0);
  if (value.bytes() > 0) std::memcpy(context.output(0).raw(), value.raw(), value.bytes());
  return absl::OkStatus();
}

}  // namespace

void RegisterCollectiveKernels(KernelRegistry& registry) {
  AddKernel<BucketKernel<&Group::AllReduce>>(registry, "AllReduce", "cpu");
  AddKernel<BucketKernel<&Group::Broadcast>>(registry, "Broadcast", "cpu");
  AddKernel<AllGatherKernel>(registry, "AllGather", "cpu");
  AddFunctionKernel(registry, "_Copy", "cpu", Copy);
}

}  // namespace tutti
