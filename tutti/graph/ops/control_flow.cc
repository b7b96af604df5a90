// If and While: nodes whose attributes are subgraphs. A subgraph's args stand for the node's inputs
// (an If's predicate is not among them): first the loop variables, then what is captured from
// around. All subgraphs of a node have the same args, so what only one of them uses is an arg of
// the other as well.
#include <fmt/format.h>

#include <algorithm>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/register.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

constexpr int kMostNested = 64;

using SubgraphPtr = std::shared_ptr<const Subgraph>;

std::string TypeText(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", NameOf(dtype), shape.ToString());
}

std::string TypeText(Output output) { return TypeText(output.dtype(), output.shape()); }

// What is true of a tensor that either shape describes.
Shape CommonShape(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return Shape::UnknownRank();
  Shape common = a;
  for (int i = 0; i < a.rank(); ++i) {
    if (a.dim(i) != b.dim(i)) common = common.WithDim(i, kUnknownDim);
  }
  return common;
}

// The subgraph `attr` takes the inputs from `first` on.
absl::StatusOr<const Subgraph*> RequireSubgraph(const InferContext& c, std::string_view attr,
                                                int first) {
  const Subgraph* subgraph = c.attr<SubgraphPtr>(attr).get();
  if (subgraph == nullptr || subgraph->graph == nullptr) {
    return c.Error("attribute \"{}\" holds no subgraph", attr);
  }
  if (int(subgraph->args.size()) != c.num_inputs() - first) {
    return c.Error("{} takes {} values; {} are given", attr, subgraph->args.size(),
                   c.num_inputs() - first);
  }
  for (int i = first; i < c.num_inputs(); ++i) {
    const Output arg = subgraph->args[i - first];
    if (arg.dtype() != c.dtype(i) || !arg.shape().CompatibleWith(c.shape(i))) {
      return c.Error("{}; {} takes {} there", c.DescribeInput(i), attr, TypeText(arg));
    }
  }
  return subgraph;
}

absl::Status InferIf(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireDType(0, kBool));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 0));
  TUTTI_ASSIGN_OR_RETURN(const Subgraph* yes, RequireSubgraph(c, "then_branch", 1));
  TUTTI_ASSIGN_OR_RETURN(const Subgraph* no, RequireSubgraph(c, "else_branch", 1));
  if (yes->results.size() != no->results.size()) {
    return c.Error("then_branch returns {} values, else_branch {}; both must return as many",
                   yes->results.size(), no->results.size());
  }
  if (yes->results.empty()) return c.Error("the branches return nothing; expected some value");
  for (size_t i = 0; i < yes->results.size(); ++i) {
    const Output a = yes->results[i];
    const Output b = no->results[i];
    if (a.dtype() != b.dtype() || !a.shape().CompatibleWith(b.shape())) {
      return c.Error("result {} is {} in then_branch and {} in else_branch; they must agree", i,
                     TypeText(a), TypeText(b));
    }
    c.SetOutput(int(i), a.dtype(), CommonShape(a.shape(), b.shape()));
  }
  return absl::OkStatus();
}

absl::Status InferWhile(InferContext& c) {
  TUTTI_ASSIGN_OR_RETURN(const Subgraph* condition, RequireSubgraph(c, "condition", 0));
  TUTTI_ASSIGN_OR_RETURN(const Subgraph* body, RequireSubgraph(c, "body", 0));
  if (condition->results.size() != 1 || condition->results[0].dtype() != kBool ||
      !condition->results[0].shape().CompatibleWith(Shape{})) {
    return c.Error("the condition returns {}; expected one bool scalar",
                   condition->results.size() == 1
                       ? TypeText(condition->results[0])
                       : fmt::format("{} values", condition->results.size()));
  }
  if (c.attr<int64_t>("max_iterations") < 0) {
    return c.Error("max_iterations is {}; expected 0 (no limit) or more",
                   c.attr<int64_t>("max_iterations"));
  }
  const int count = int(body->results.size());
  if (count < 1 || count > c.num_inputs()) {
    return c.Error("the body returns {} values for the loop's variables; expected 1 to {}", count,
                   c.num_inputs());
  }
  for (int i = 0; i < count; ++i) {
    const Output variable = body->args[i];
    const Output next = body->results[i];
    if (next.dtype() != variable.dtype() || !next.shape().CompatibleWith(variable.shape())) {
      return c.Error(
          "loop variable {} is {} but the body returns {} for it; it must keep dtype and shape "
          "(WhileOptions::shapes can leave dimensions open)",
          i, TypeText(variable), TypeText(next));
    }
    c.SetOutput(i, variable.dtype(), variable.shape());
    const Shape& each = variable.shape();
    if (each.rank() == kMaxRank) {
      return c.Error("loop variable {} has {} dimensions; expected at most {}", i, each.rank(),
                     kMaxRank - 1);
    }
    c.SetOutput(count + i, variable.dtype(),
                each.has_rank() ? each.WithInserted(0, kUnknownDim) : Shape::UnknownRank());
  }
  c.SetOutput(2 * count, kInt64, Shape{});
  return absl::OkStatus();
}

void RequireDepth(const Graph& parent, std::string_view op) {
  int depth = 1;
  for (const Graph* graph = &parent; graph->parent() != nullptr; graph = graph->parent()) ++depth;
  if (depth > kMostNested) {
    ThrowInvalidArgument(fmt::format("{}: If and While lie {} deep inside each other; at most {}",
                                     op, depth, kMostNested));
  }
}

// Calls `build` for a new subgraph of `parent` with args of the given types.
Subgraph BuildSubgraph(Graph& parent, std::span<const ValueType> types, std::string_view what,
                       const std::function<std::vector<Output>(std::span<const Output>)>& build) {
  Subgraph subgraph;
  subgraph.graph = std::make_unique<Graph>(&parent);
  const SubgraphScope scope(subgraph.graph.get());
  for (const ValueType& type : types) {
    subgraph.args.push_back(
        subgraph.graph->Add({.op = "Arg", .attrs = {{"dtype", type.dtype}, {"shape", type.shape}}})
            ->output());
  }
  subgraph.results = build(subgraph.args);
  for (Output& result : subgraph.results) {
    if (!result) ThrowInvalidArgument(fmt::format("{}: one of its results is empty", what));
    // A value from around, returned as it is, is captured.
    if (&result.graph() != subgraph.graph.get()) result = Identity(result);
  }
  return subgraph;
}

// Gives both subgraphs an arg for each value that either captures, and returns these values.
std::vector<Output> JoinCaptures(Subgraph& a, Subgraph& b) {
  std::vector<Graph::Capture> all = a.graph->captures();
  for (const Graph::Capture& capture : b.graph->captures()) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Graph::Capture& other) {
      return other.outer == capture.outer;
    });
    if (!known) all.push_back(capture);
  }
  std::vector<Output> outer;
  for (const Graph::Capture& capture : all) {
    outer.push_back(capture.outer);
    for (Subgraph* subgraph : {&a, &b}) {
      const auto& own = subgraph->graph->captures();
      const auto it = std::find_if(own.begin(), own.end(), [&](const Graph::Capture& other) {
        return other.outer == capture.outer;
      });
      subgraph->args.push_back(
          it != own.end()
              ? it->arg
              : subgraph->graph->Add({.op = "Arg", .attrs = capture.arg.node->attrs()})->output());
    }
  }
  return outer;
}

}  // namespace

void RegisterControlFlowOps(OpRegistry& registry) {
  registry.Add(
      {.name = "If",
       .inputs = {"predicate", "captured..."},
       .attrs = {{"then_branch", AttrType::kSubgraph}, {"else_branch", AttrType::kSubgraph}},
       .infer = InferIf,
       .gradient = Gradient::kDefined,
       .stateful = true,
       .async = true,
       .provides_outputs = true});
  registry.Add({.name = "While",
                .inputs = {"values..."},
                .attrs = {{"condition", AttrType::kSubgraph},
                          {"body", AttrType::kSubgraph},
                          {"max_iterations", int64_t{0}}},
                .infer = InferWhile,
                .gradient = Gradient::kDefined,
                .stateful = true,
                .async = true,
                .provides_outputs = true});
}

std::vector<Output> If(Input predicate, const std::function<std::vector<Output>()>& then_branch,
                       const std::function<std::vector<Output>()>& else_branch,
                       std::string_view name) {
  Graph* parent = SubgraphBeingBuilt();
  if (parent == nullptr && predicate.is_literal()) {
    ThrowInvalidArgument("If: the predicate is a C++ value; use a C++ if, or a Constant");
  }
  if (parent == nullptr) parent = &predicate.output().graph();
  RequireDepth(*parent, "If");
  const auto build = [&](std::string_view what,
                         const std::function<std::vector<Output>()>& branch) {
    return std::make_shared<Subgraph>(
        BuildSubgraph(*parent, {}, what, [&](std::span<const Output>) { return branch(); }));
  };
  const auto yes = build("If: then_branch", then_branch);
  const auto no = build("If: else_branch", else_branch);
  const std::vector<Output> captured = JoinCaptures(*yes, *no);
  return OpBuilder("If", name)
      .On(*parent)
      .In(predicate)
      .In(captured)
      .Attr("then_branch", SubgraphPtr(yes))
      .Attr("else_branch", SubgraphPtr(no))
      .BuildAll();
}

std::vector<Output> While(std::span<const Output> initial,
                          const std::function<Output(std::span<const Output>)>& condition,
                          const std::function<std::vector<Output>(std::span<const Output>)>& body,
                          const WhileOptions& options, std::string_view name,
                          std::source_location where) {
  if (initial.empty()) ThrowInvalidArgument("While: no loop variables given");
  if (!options.shapes.empty() && options.shapes.size() != initial.size()) {
    ThrowInvalidArgument(fmt::format("While: {} shapes given for {} loop variables",
                                     options.shapes.size(), initial.size()));
  }
  std::vector<ValueType> types;
  for (size_t i = 0; i < initial.size(); ++i) {
    if (!initial[i]) ThrowInvalidArgument(fmt::format("While: loop variable {} is empty", i));
    types.push_back(
        {initial[i].dtype(), options.shapes.empty() ? initial[i].shape() : options.shapes[i]});
  }
  Graph* parent = SubgraphBeingBuilt();
  if (parent == nullptr) parent = &initial[0].graph();
  RequireDepth(*parent, "While");
  const auto test = std::make_shared<Subgraph>(BuildSubgraph(
      *parent, types, "While: condition",
      [&](std::span<const Output> variables) { return std::vector{condition(variables)}; }));
  const auto again = std::make_shared<Subgraph>(BuildSubgraph(*parent, types, "While: body", body));
  if (again->results.size() != initial.size()) {
    ThrowInvalidArgument(fmt::format("While: the body returns {} values for {} loop variables",
                                     again->results.size(), initial.size()));
  }
  const std::vector<Output> captured = JoinCaptures(*test, *again);
  std::vector<Output> outputs = OpBuilder("While", name)
                                    .On(*parent)
                                    .At(where)
                                    .In(initial)
                                    .In(captured)
                                    .Attr("condition", SubgraphPtr(test))
                                    .Attr("body", SubgraphPtr(again))
                                    .Attr("max_iterations", options.max_iterations)
                                    .BuildAll();
  outputs.resize(initial.size());
  return outputs;
}

int NumLoopVariables(const Node& while_node) {
  return int(while_node.attr<SubgraphPtr>("body")->results.size());
}

}  // namespace tutti
