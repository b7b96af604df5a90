#include "tutti/testing/one_node.h"

#include <fmt/format.h>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/source.h"

namespace tutti::testing {
namespace {

Shape Declare(const Shape& shape, Declared how, Random& random) {
  if (how == Declared::kUnknownRanks) return Shape::UnknownRank();
  Shape declared = shape;
  for (int i = 0; i < shape.rank() && how == Declared::kUnknownDims; ++i) {
    if (random.Coin()) declared = declared.WithDim(i, kUnknownDim);
  }
  return declared;
}

}  // namespace

std::string_view NameOf(Declared how) {
  constexpr std::string_view kNames[] = {"exact shapes", "all inputs fed", "unknown dimensions",
                                         "unknown ranks"};
  return kNames[size_t(how)];
}

absl::StatusOr<std::vector<Tensor>> OneNode::Run(KernelRunner& runner) const {
  runner.set_random_step(0);
  return runner.Run(feeds, outputs, std::span(&node, 1));
}

absl::Status Build(const std::string& op, const OpCase& op_case, Declared how, Random& random,
                   OneNode& built) {
  NodeSpec spec{.op = op, .attrs = op_case.attrs};
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor& value = op_case.inputs[i];
    const std::string name = fmt::format("input_{}", i);
    if (how == Declared::kExactly && IsInteger(value.dtype())) {
      spec.inputs.push_back(Constant(built.graph, value, name));
      continue;
    }
    spec.inputs.push_back(
        Placeholder(built.graph, value.dtype(), Declare(value.shape(), how, random), name));
    built.feeds[spec.inputs.back()] = value;
  }
  built.inputs = spec.inputs;
  TUTTI_ASSIGN_OR_RETURN(built.node, AddNode(built.graph, std::move(spec)));
  for (int i = 0; i < built.node->num_outputs(); ++i) {
    built.outputs.push_back(built.node->output(i));
  }
  return absl::OkStatus();
}

}  // namespace tutti::testing
