#include "tutti/nn/dropout.h"

#include <fmt/format.h>

#include <optional>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/nn/layer.h"
#include "tutti/nn/sample_scope.h"
#include "tutti/nn/seed.h"

namespace tutti::nn {
namespace {

// The index, in the global batch, of the first element of x; empty where nobody says where x
// stands. The elements of a sample lie side by side, also where the batch was merged with further
// dimensions, so the size of x tells how many they are.
Output OffsetOf(const Input& x, const DropoutLayerOptions& options) {
  const Shape& shape = x.output().shape();
  Output first, samples;
  if (options.first_sample) {
    if (shape.rank() == 0) {
      ThrowInvalidArgument(
          fmt::format("Dropout: first_sample is given, but the input {} is a scalar; expected a "
                      "first dimension that counts samples",
                      x.output().node->Describe()));
    }
    first = options.first_sample;
    samples = Reshape(Slice(ShapeOf(x), std::vector<int64_t>{0}, std::vector<int64_t>{1}), Shape{});
  } else if (const SampleScope* scope = SampleScope::Current()) {
    if (shape.has_rank() && (shape.rank() == 0 || shape[0] >= 0)) return {};
    first = scope->first();
    samples = scope->samples();
  } else {
    return {};
  }
  return Mul(first, FloorDiv(Size(x), Maximum(samples, int64_t{1})));
}

// The variable "global_step" of the outermost graph around `graph`; empty where there is none.
Output GlobalStepOf(const Graph& graph) {
  const Graph* outermost = &graph;
  while (outermost->parent() != nullptr) outermost = outermost->parent();
  const Node* node = outermost->Find("global_step");
  const bool is_step = node != nullptr && node->op() == "Variable" &&
                       node->type(0).dtype == kInt64 && node->type(0).shape == Shape{};
  return is_step ? node->output() : Output();
}

// What tells this layer's random numbers from others': under a ReuseScope that of the layer as it
// was built first, so that the towers of a model drop what one model would.
std::optional<int64_t> NodeSeedOf(const Graph& graph) {
  const ReuseScope* reuse = ReuseScope::Current();
  if (reuse == nullptr) return std::nullopt;
  const Node* first = graph.Find(reuse->SourceName(graph.name_scope() + "Dropout"));
  if (first == nullptr || first->op() != "Dropout") return std::nullopt;
  return first->attr<int64_t>("node_seed");
}

}  // namespace

Output Dropout(Input x, double rate, const DropoutLayerOptions& options, std::string_view name) {
  Graph& graph = GraphOf(x, "Dropout");
  if (!(rate >= 0 && rate < 1)) {
    ThrowInvalidArgument(fmt::format("Dropout: rate is {}; expected at least 0 and below 1", rate));
  }
  if (!options.training || rate == 0) return x.output();
  NameScope scope(graph, name);
  const Output step = options.step ? options.step : GlobalStepOf(graph);
  return tutti::Dropout(
      x, rate,
      {.random = {.seed = SeedOf(graph), .node_seed = NodeSeedOf(graph), .step = step},
       .offset = OffsetOf(x, options)});
}

}  // namespace tutti::nn
