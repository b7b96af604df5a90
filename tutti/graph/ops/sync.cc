#include "tutti/graph/ops/sync.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status InferResource(InferContext& c) {
  for (const char* count : {"participants", "admit", "workers"}) {
    if (c.def().FindAttr(count) == nullptr || c.attr<int64_t>(count) >= 1) continue;
    return c.Error("{} is {}; expected at least 1", count, c.attr<int64_t>(count));
  }
  if (c.def().FindAttr("admit") != nullptr &&
      c.attr<int64_t>("admit") > c.attr<int64_t>("workers")) {
    return c.Error("admit is {}, more than the {} workers there are", c.attr<int64_t>("admit"),
                   c.attr<int64_t>("workers"));
  }
  if (c.def().FindAttr("dtype") != nullptr &&
      (c.attr<DType>("dtype") == DType::kInvalid || c.attr<DType>("dtype") == kBool)) {
    return c.Error("dtype is {}; expected a numeric type", NameOf(c.attr<DType>("dtype")));
  }
  if (c.def().FindAttr("shape") != nullptr && !c.attr<Shape>("shape").IsFullyKnown()) {
    return c.Error("shape is {}; every dimension must be known", c.attr<Shape>("shape").ToString());
  }
  c.SetOutput(0, kInt64, Shape{});
  return absl::OkStatus();
}

// Inputs `first` to `last` are integer scalars.
absl::Status RequireIntegers(InferContext& c, int first, int last) {
  for (int i = first; i <= last; ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(i));
    TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 0));
  }
  return absl::OkStatus();
}

// All inputs after the resource are integer scalars; the output, if any, is a scalar of `dtype`.
auto InferIntegers(DType dtype) {
  return [dtype](InferContext& c) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, c.num_inputs() - 1));
    if (dtype != DType::kInvalid) c.SetOutput(0, dtype, Shape{});
    return absl::OkStatus();
  };
}

const Node& Declaration(const InferContext& c) { return *c.spec().inputs[0].node; }

absl::Status InferApply(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, 2));
  TUTTI_RETURN_IF_ERROR(c.RequireDType(3, Declaration(c).attr<DType>("dtype")));
  const Shape& shape = Declaration(c).attr<Shape>("shape");
  if (c.shape(3).CompatibleWith(shape)) return absl::OkStatus();
  return c.Error("{}; the accumulator is {}", c.DescribeInput(3), shape.ToString());
}

absl::Status InferApplyRows(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, 2));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(3));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(3, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireDType(4, Declaration(c).attr<DType>("dtype")));
  const Shape& shape = Declaration(c).attr<Shape>("shape");
  if (shape.rank() < 1) return c.Error("the accumulator is a scalar and has no rows");
  const int64_t count = c.shape(3).has_rank() ? c.shape(3).dim(0) : kUnknownDim;
  if (c.shape(4).CompatibleWith(shape.WithDim(0, count))) return absl::OkStatus();
  return c.Error("{}; expected {}: a row of the accumulator for each index", c.DescribeInput(4),
                 shape.WithDim(0, count).ToString());
}

absl::Status InferTake(InferContext& c, bool rows) {
  TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, 1));
  TUTTI_RETURN_IF_ERROR(c.RequireIndex(2));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(2, 1));
  const DType dtype = Declaration(c).attr<DType>("dtype");
  const Shape& shape = Declaration(c).attr<Shape>("shape");
  if (!rows) {
    c.SetOutput(0, dtype, shape);
    return absl::OkStatus();
  }
  if (shape.rank() < 1) return c.Error("the accumulator is a scalar and has no rows");
  c.SetOutput(0, kInt64, Shape{kUnknownDim});
  c.SetOutput(1, dtype, shape.WithDim(0, kUnknownDim));
  return absl::OkStatus();
}

void AddResource(OpRegistry& registry, const char* name, std::vector<AttrDef> attrs) {
  attrs.emplace_back("container", std::string());
  registry.Add({.name = name,
                .attrs = std::move(attrs),
                .infer = InferResource,
                .gradient = Gradient::kZero,
                .stateful = true});
}

struct SyncOp {
  const char* name;
  std::vector<std::string> inputs;
  std::function<absl::Status(InferContext&)> infer;
  bool waits = false;
  bool provides_outputs = false;
  std::vector<AttrDef> attrs = {};
};

void AddSyncOps(OpRegistry& registry, const char* resource, std::vector<SyncOp> ops) {
  for (SyncOp& op : ops) {
    registry.Add({.name = op.name,
                  .inputs = std::move(op.inputs),
                  .refers_to = {resource},
                  .attrs = std::move(op.attrs),
                  .infer = std::move(op.infer),
                  .gradient = Gradient::kZero,
                  .stateful = true,
                  .async = op.waits,
                  .provides_outputs = op.provides_outputs});
  }
}

OpBuilder Declare(const char* op, Graph& graph, std::string_view name,
                  const std::source_location& where) {
  OpBuilder builder(op, name);
  builder.On(graph).At(where);
  return builder;
}

}  // namespace

void RegisterSyncOps(OpRegistry& registry) {
  AddResource(registry, "Mutex", {});
  AddResource(registry, "Barrier", {{"participants", AttrType::kInt}});
  AddResource(registry, "Accumulator", {{"dtype", AttrType::kDType}, {"shape", AttrType::kShape}});
  AddResource(registry, "Gate", {{"admit", AttrType::kInt}, {"workers", AttrType::kInt}});
  AddResource(registry, "Clock", {{"workers", AttrType::kInt}});
  AddResource(registry, "Dispenser", {{"workers", AttrType::kInt}});
  AddResource(registry, "Ledger", {{"workers", AttrType::kInt}});

  AddSyncOps(registry, "Mutex",
             {{"MutexAcquire", {"&mutex"}, InferIntegers(kInt64), true},
              {"MutexRelease", {"&mutex", "token"}, InferIntegers(DType::kInvalid)}});
  AddSyncOps(registry, "Barrier", {{"BarrierWait", {"&barrier"}, InferIntegers(kInt64), true}});
  AddSyncOps(registry, "Accumulator",
             {{"AccumulatorApply",
               {"&accumulator", "step", "slot", "gradient"},
               InferApply,
               false,
               false,
               {{"once", false}}},
              {"AccumulatorApplyRows",
               {"&accumulator", "step", "slot", "indices", "rows"},
               InferApplyRows,
               false,
               false,
               {{"once", false}}},
              {"AccumulatorTake",
               {"&accumulator", "step", "slots"},
               [](InferContext& c) { return InferTake(c, false); },
               true,
               true},
              {"AccumulatorTakeRows",
               {"&accumulator", "step", "slots"},
               [](InferContext& c) { return InferTake(c, true); },
               true,
               true}});
  AddSyncOps(registry, "Gate",
             {{"GateEnter", {"&gate", "step", "worker"}, InferIntegers(kBool)},
              {"GateAdmitted",
               {"&gate", "step"},
               [](InferContext& c) -> absl::Status {
                 TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, 1));
                 c.SetOutput(0, kInt64, Shape{kUnknownDim});
                 return absl::OkStatus();
               },
               true,
               true},
              {"GateContains", {"&gate", "step", "worker"}, InferIntegers(kBool)},
              {"GateLeave", {"&gate", "worker"}, InferIntegers(DType::kInvalid)},
              {"GateJoin", {"&gate", "worker"}, InferIntegers(kInt64)},
              {"GateRefused", {"&gate"}, InferIntegers(kInt64)},
              {"GateRefusals", {"&gate"}, [](InferContext& c) -> absl::Status {
                 c.SetOutput(0, kInt64, Shape{Declaration(c).attr<int64_t>("workers")});
                 return absl::OkStatus();
               }}});
  AddSyncOps(registry, "Clock",
             {{"ClockAdvance", {"&clock", "worker"}, InferIntegers(kInt64)},
              {"ClockWait", {"&clock", "worker", "staleness"}, InferIntegers(kInt64), true},
              {"ClockLeave", {"&clock", "worker"}, InferIntegers(DType::kInvalid)},
              {"ClockJoin", {"&clock", "worker"}, InferIntegers(kInt64)}});
  AddSyncOps(registry, "Dispenser",
             {{"DispenserTake", {"&dispenser", "worker"}, InferIntegers(kInt64)},
              {"DispenserReturn",
               {"&dispenser", "worker"},
               [](InferContext& c) -> absl::Status {
                 TUTTI_RETURN_IF_ERROR(RequireIntegers(c, 1, 1));
                 c.SetOutput(0, kInt64, Shape{2});
                 return absl::OkStatus();
               }},
              {"DispenserReset", {"&dispenser"}, InferIntegers(DType::kInvalid)}});
  AddSyncOps(registry, "Ledger",
             {{"LedgerEnter", {"&ledger", "worker", "step"}, InferIntegers(kBool)},
              {"LedgerConfirm", {"&ledger", "worker", "step"}, InferIntegers(DType::kInvalid)}});
}

Output Mutex(Graph& graph, std::string_view name, std::source_location where) {
  return Declare("Mutex", graph, name, where).Build();
}
Output MutexAcquire(Input mutex, std::string_view name) {
  return OpBuilder("MutexAcquire", name).In(mutex).Build();
}
Node* MutexRelease(Input mutex, Input token, std::string_view name) {
  return OpBuilder("MutexRelease", name).In(mutex).In(token).BuildNode();
}

Output Barrier(Graph& graph, int64_t participants, std::string_view name,
               std::source_location where) {
  return Declare("Barrier", graph, name, where).Attr("participants", participants).Build();
}
Output BarrierWait(Input barrier, std::string_view name) {
  return OpBuilder("BarrierWait", name).In(barrier).Build();
}

Output Accumulator(Graph& graph, DType dtype, const Shape& shape, std::string_view name,
                   std::source_location where) {
  return Declare("Accumulator", graph, name, where)
      .Attr("dtype", dtype)
      .Attr("shape", shape)
      .Build();
}
Node* AccumulatorApply(Input accumulator, Input step, Input slot, Input gradient,
                       const AccumulatorApplyOptions& options, std::string_view name) {
  return OpBuilder("AccumulatorApply", name)
      .In(accumulator)
      .In(step)
      .In(slot)
      .In(gradient)
      .Attr("once", options.once)
      .BuildNode();
}
Node* AccumulatorApplyRows(Input accumulator, Input step, Input slot, Input indices, Input rows,
                           const AccumulatorApplyOptions& options, std::string_view name) {
  return OpBuilder("AccumulatorApplyRows", name)
      .In(accumulator)
      .In(step)
      .In(slot)
      .In(indices)
      .In(rows)
      .Attr("once", options.once)
      .BuildNode();
}
Output AccumulatorTake(Input accumulator, Input step, Input slots, std::string_view name) {
  return OpBuilder("AccumulatorTake", name).In(accumulator).In(step).In(slots).Build();
}
AccumulatedRows AccumulatorTakeRows(Input accumulator, Input step, Input slots,
                                    std::string_view name) {
  const Node* node =
      OpBuilder("AccumulatorTakeRows", name).In(accumulator).In(step).In(slots).BuildNode();
  return {node->output(0), node->output(1)};
}

Output Gate(Graph& graph, int64_t admit, int64_t workers, std::string_view name,
            std::source_location where) {
  return Declare("Gate", graph, name, where).Attr("admit", admit).Attr("workers", workers).Build();
}
Output GateEnter(Input gate, Input step, Input worker, std::string_view name) {
  return OpBuilder("GateEnter", name).In(gate).In(step).In(worker).Build();
}
Output GateAdmitted(Input gate, Input step, std::string_view name) {
  return OpBuilder("GateAdmitted", name).In(gate).In(step).Build();
}
Output GateContains(Input gate, Input step, Input worker, std::string_view name) {
  return OpBuilder("GateContains", name).In(gate).In(step).In(worker).Build();
}
Node* GateLeave(Input gate, Input worker, std::string_view name) {
  return OpBuilder("GateLeave", name).In(gate).In(worker).BuildNode();
}
Output GateJoin(Input gate, Input worker, std::string_view name) {
  return OpBuilder("GateJoin", name).In(gate).In(worker).Build();
}
Output GateRefused(Input gate, std::string_view name) {
  return OpBuilder("GateRefused", name).In(gate).Build();
}
Output GateRefusals(Input gate, std::string_view name) {
  return OpBuilder("GateRefusals", name).In(gate).Build();
}

Output Clock(Graph& graph, int64_t workers, std::string_view name, std::source_location where) {
  return Declare("Clock", graph, name, where).Attr("workers", workers).Build();
}
Output ClockAdvance(Input clock, Input worker, std::string_view name) {
  return OpBuilder("ClockAdvance", name).In(clock).In(worker).Build();
}
Output ClockWait(Input clock, Input worker, Input staleness, std::string_view name) {
  return OpBuilder("ClockWait", name).In(clock).In(worker).In(staleness).Build();
}
Node* ClockLeave(Input clock, Input worker, std::string_view name) {
  return OpBuilder("ClockLeave", name).In(clock).In(worker).BuildNode();
}
Output ClockJoin(Input clock, Input worker, std::string_view name) {
  return OpBuilder("ClockJoin", name).In(clock).In(worker).Build();
}

Output Dispenser(Graph& graph, int64_t workers, std::string_view name, std::source_location where) {
  return Declare("Dispenser", graph, name, where).Attr("workers", workers).Build();
}
Output DispenserTake(Input dispenser, Input worker, std::string_view name) {
  return OpBuilder("DispenserTake", name).In(dispenser).In(worker).Build();
}
Output DispenserReturn(Input dispenser, Input worker, std::string_view name) {
  return OpBuilder("DispenserReturn", name).In(dispenser).In(worker).Build();
}
Node* DispenserReset(Input dispenser, std::string_view name) {
  return OpBuilder("DispenserReset", name).In(dispenser).BuildNode();
}

Output Ledger(Graph& graph, int64_t workers, std::string_view name, std::source_location where) {
  return Declare("Ledger", graph, name, where).Attr("workers", workers).Build();
}
Output LedgerEnter(Input ledger, Input worker, Input step, std::string_view name) {
  return OpBuilder("LedgerEnter", name).In(ledger).In(worker).In(step).Build();
}
Node* LedgerConfirm(Input ledger, Input worker, Input step, std::string_view name) {
  return OpBuilder("LedgerConfirm", name).In(ledger).In(worker).In(step).BuildNode();
}

}  // namespace tutti
