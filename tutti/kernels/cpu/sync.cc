// The nodes of graph/ops/sync.h: each reads its integers and calls its resource.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/device/kernel.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/update/row_indices.h"
#include "tutti/kernels/waiting/accumulator_resource.h"
#include "tutti/kernels/waiting/resource_access.h"
#include "tutti/kernels/waiting/sync_resources.h"

namespace tutti {
namespace {

void Configure(const Node& node, MutexResource::Config& config) { config.name = node.name(); }
void Configure(const Node& node, BarrierResource::Config& config) {
  config = {node.name(), node.attr<int64_t>("participants")};
}
void Configure(const Node& node, GateResource::Config& config) {
  config = {node.name(), node.attr<int64_t>("admit"), node.attr<int64_t>("workers")};
}
void Configure(const Node& node, ClockResource::Config& config) {
  config = {node.name(), node.attr<int64_t>("workers")};
}
void Configure(const Node& node, DispenserResource::Config& config) {
  config = {node.name(), node.attr<int64_t>("workers")};
}
void Configure(const Node& node, LedgerResource::Config& config) {
  config = {node.name(), node.attr<int64_t>("workers")};
}
void Configure(const Node& node, AccumulatorResource::Config& config) {
  config = {node.name(), node.attr<DType>("dtype"), node.attr<Shape>("shape")};
}

template <typename R>
absl::StatusOr<std::shared_ptr<R>> ResourceOf(PrepareContext& c) {
  const Node& declaration = *c.node().input(0).node;
  typename R::Config config;
  Configure(declaration, config);
  return FindResource<R>(declaration, c.device(), config);
}

// A node that never waits: a function `absl::Status(KernelContext&, R&)`.
template <typename R, auto kFunction>
class ImmediateKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(resource_, ResourceOf<R>(c));
    return absl::OkStatus();
  }
  absl::Status Compute(KernelContext& c) override { return kFunction(c, *resource_); }

 private:
  std::shared_ptr<R> resource_;
};

// A node that may wait: the function hands a waiter to the resource, or returns an error.
template <typename R, auto kFunction>
class WaitingKernel final : public AsyncKernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(resource_, ResourceOf<R>(c));
    return absl::OkStatus();
  }
  void Start(KernelContext& c) override {
    absl::Status status = kFunction(c, *resource_);
    if (!status.ok()) FinishNode(c, std::move(status));
  }
  std::string Awaited(const KernelContext&) const override { return resource_->Describe(); }

 private:
  std::shared_ptr<R> resource_;
};

absl::Status AcquireMutex(KernelContext& c, MutexResource& mutex) {
  mutex.Acquire(std::make_shared<MutexWaiter>(
      c, std::static_pointer_cast<MutexResource>(mutex.shared_from_this())));
  return absl::OkStatus();
}

absl::Status ReleaseMutex(KernelContext& c, MutexResource& mutex) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t token, IntegerScalar(c.input(1), "token"));
  return mutex.Release(token);
}

absl::Status WaitAtBarrier(KernelContext& c, BarrierResource& barrier) {
  barrier.Arrive(std::make_shared<NumberWaiter>(c));
  return absl::OkStatus();
}

absl::Status EnterGate(KernelContext& c, GateResource& gate) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(2), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<bool>(), gate.Enter(step, worker));
  return absl::OkStatus();
}

absl::Status ListAdmitted(KernelContext& c, GateResource& gate) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  gate.Admitted(std::make_shared<GateWaiter>(c, step));
  return absl::OkStatus();
}

absl::Status LookIntoGate(KernelContext& c, GateResource& gate) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(2), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<bool>(), gate.Contains(step, worker));
  return absl::OkStatus();
}

absl::Status LeaveGate(KernelContext& c, GateResource& gate) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  return gate.Leave(worker);
}

absl::Status JoinGate(KernelContext& c, GateResource& gate) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<int64_t>(), gate.Join(worker));
  return absl::OkStatus();
}

absl::Status CountRefused(KernelContext& c, GateResource& gate) {
  const std::vector<int64_t> refused = gate.refused();
  *c.output(0).data<int64_t>() = std::accumulate(refused.begin(), refused.end(), int64_t{0});
  return absl::OkStatus();
}

absl::Status ListRefused(KernelContext& c, GateResource& gate) {
  const std::vector<int64_t> refused = gate.refused();
  std::copy(refused.begin(), refused.end(), c.output(0).data<int64_t>());
  return absl::OkStatus();
}

absl::Status AdvanceClock(KernelContext& c, ClockResource& clock) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<int64_t>(), clock.Advance(worker));
  return absl::OkStatus();
}

absl::Status WaitForClock(KernelContext& c, ClockResource& clock) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t staleness, IntegerScalar(c.input(2), "staleness"));
  clock.Wait(std::make_shared<ClockWaiter>(c, worker, staleness));
  return absl::OkStatus();
}

absl::Status LeaveClock(KernelContext& c, ClockResource& clock) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  return clock.Leave(worker);
}

absl::Status JoinClock(KernelContext& c, ClockResource& clock) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<int64_t>(), clock.Join(worker));
  return absl::OkStatus();
}

absl::Status TakeNumber(KernelContext& c, DispenserResource& dispenser) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<int64_t>(), dispenser.Take(worker));
  return absl::OkStatus();
}

absl::Status ReturnNumbers(KernelContext& c, DispenserResource& dispenser) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(const DispenserResource::Held held, dispenser.Return(worker));
  std::copy(held.begin(), held.end(), c.output(0).data<int64_t>());
  return absl::OkStatus();
}

absl::Status ResetNumbers(KernelContext& /*c*/, DispenserResource& dispenser) {
  dispenser.Reset();
  return absl::OkStatus();
}

absl::Status EnterLedger(KernelContext& c, LedgerResource& ledger) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(2), "step"));
  TUTTI_ASSIGN_OR_RETURN(*c.output(0).data<bool>(), ledger.Enter(worker, step, c.step->cleanup));
  return absl::OkStatus();
}

absl::Status ConfirmInLedger(KernelContext& c, LedgerResource& ledger) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t worker, IntegerScalar(c.input(1), "worker"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(2), "step"));
  return ledger.Confirm(worker, step);
}

absl::StatusOr<Tensor> CopyOf(const Tensor& value, Device& device) {
  TUTTI_ASSIGN_OR_RETURN(Tensor copy, device.pool().Allocate(value.dtype(), value.shape()));
  if (value.bytes() > 0) std::memcpy(copy.raw(), value.raw(), value.bytes());
  return copy;
}

// What came from another device is nobody's to change, and is held where it is; anything else may
// lie in memory of the step.
absl::Status Keep(const KernelContext& c, int input, Contribution& contribution) {
  contribution.own = !c.node->input(input).node->def().transfer;
  if (!contribution.own) {
    contribution.values = c.input(input);
    return absl::OkStatus();
  }
  TUTTI_ASSIGN_OR_RETURN(contribution.values, CopyOf(c.input(input), c.device()));
  return absl::OkStatus();
}

absl::Status ApplyDense(KernelContext& c, AccumulatorResource& accumulator) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t slot, IntegerScalar(c.input(2), "slot"));
  const Tensor& gradient = c.input(3);
  if (gradient.shape() != accumulator.config().shape) {
    return InvalidArgument("gradient is {}; accumulator \"{}\" is {}", gradient.shape().ToString(),
                           accumulator.config().name, accumulator.config().shape.ToString());
  }
  Contribution contribution;
  TUTTI_RETURN_IF_ERROR(Keep(c, 3, contribution));
  return accumulator.Apply(step, slot, c.node->attr<bool>("once"), std::move(contribution));
}

absl::Status ApplyRows(KernelContext& c, AccumulatorResource& accumulator) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  TUTTI_ASSIGN_OR_RETURN(const int64_t slot, IntegerScalar(c.input(2), "slot"));
  const RowIndices indices(c.input(3));
  const Shape& shape = accumulator.config().shape;
  TUTTI_RETURN_IF_ERROR(indices.CheckRange(shape, "accumulator", accumulator.config().name));
  TUTTI_RETURN_IF_ERROR(indices.CheckRows(shape, c.input(4).shape()));
  Contribution contribution;
  TUTTI_ASSIGN_OR_RETURN(contribution.indices,
                         c.device().pool().Allocate(kInt64, Shape{indices.size()}));
  for (int64_t i = 0; i < indices.size(); ++i) {
    contribution.indices.data<int64_t>()[i] = indices[i];
  }
  TUTTI_RETURN_IF_ERROR(Keep(c, 4, contribution));
  return accumulator.Apply(step, slot, c.node->attr<bool>("once"), std::move(contribution));
}

template <bool kRows>
absl::Status TakeAccumulated(KernelContext& c, AccumulatorResource& accumulator) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t step, IntegerScalar(c.input(1), "step"));
  const RowIndices given(c.input(2));
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0) return OutOfRange("slots[{}] is {}; expected 0 or more", i, given[i]);
    slots.push_back(given[i]);
  }
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice != slots.end()) return InvalidArgument("slots name {} twice", *twice);
  accumulator.Take(std::make_shared<AccumulatorTakeWaiter>(c, step, std::move(slots), kRows));
  return absl::OkStatus();
}

template <typename R, auto kFunction>
void AddImmediate(KernelRegistry& registry, std::string_view op) {
  AddKernel<ImmediateKernel<R, kFunction>>(registry, op, "cpu");
}
template <typename R, auto kFunction>
void AddWaiting(KernelRegistry& registry, std::string_view op) {
  AddKernel<WaitingKernel<R, kFunction>>(registry, op, "cpu");
}

}  // namespace

void RegisterSyncCpuKernels(KernelRegistry& registry) {
  for (const char* op :
       {"Mutex", "Barrier", "Accumulator", "Gate", "Clock", "Dispenser", "Ledger"}) {
    AddResourceNodeKernel(registry, op);
  }
  AddWaiting<MutexResource, AcquireMutex>(registry, "MutexAcquire");
  AddImmediate<MutexResource, ReleaseMutex>(registry, "MutexRelease");
  AddWaiting<BarrierResource, WaitAtBarrier>(registry, "BarrierWait");
  AddImmediate<AccumulatorResource, ApplyDense>(registry, "AccumulatorApply");
  AddImmediate<AccumulatorResource, ApplyRows>(registry, "AccumulatorApplyRows");
  AddWaiting<AccumulatorResource, TakeAccumulated<false>>(registry, "AccumulatorTake");
  AddWaiting<AccumulatorResource, TakeAccumulated<true>>(registry, "AccumulatorTakeRows");
  AddImmediate<GateResource, EnterGate>(registry, "GateEnter");
  AddWaiting<GateResource, ListAdmitted>(registry, "GateAdmitted");
  AddImmediate<GateResource, LookIntoGate>(registry, "GateContains");
  AddImmediate<GateResource, LeaveGate>(registry, "GateLeave");
  AddImmediate<GateResource, JoinGate>(registry, "GateJoin");
  AddImmediate<GateResource, CountRefused>(registry, "GateRefused");
  AddImmediate<GateResource, ListRefused>(registry, "GateRefusals");
  AddImmediate<ClockResource, AdvanceClock>(registry, "ClockAdvance");
  AddWaiting<ClockResource, WaitForClock>(registry, "ClockWait");
  AddImmediate<ClockResource, LeaveClock>(registry, "ClockLeave");
  AddImmediate<ClockResource, JoinClock>(registry, "ClockJoin");
  AddImmediate<DispenserResource, TakeNumber>(registry, "DispenserTake");
  AddImmediate<DispenserResource, ReturnNumbers>(registry, "DispenserReturn");
  AddImmediate<DispenserResource, ResetNumbers>(registry, "DispenserReset");
  AddImmediate<LedgerResource, EnterLedger>(registry, "LedgerEnter");
  AddImmediate<LedgerResource, ConfirmInLedger>(registry, "LedgerConfirm");
}

}  // namespace tutti
