// Reverse-mode differentiation over a graph whose node ids are a topological order.
//
// Forward over the ids: mark what depends on an x. Backward over the ids from the last y: a node
// that depends on an x and lies under a y has, when the walk reaches it, all gradients of its
// outputs, because every consumer has a larger id. They are summed (AddN; rows are concatenated and
// stay rows), handed to the op's gradient function, and what it returns is left at the inputs. No
// recursion, one visit a node.
#include "tutti/autodiff/gradients.h"

#include <fmt/format.h>

#include <unordered_map>

#include "tutti/autodiff/gradient_registry.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

class ReversePass {
 public:
  ReversePass(Graph& graph, int64_t size, std::span<const Output> xs)
      : graph_(graph), depends_(size, false), arrived_() {
    for (const Output& x : xs) {
      if (&x.graph() != &graph) {
        ThrowInvalidArgument(
            fmt::format("Gradients: {} belongs to another graph than the ys", x.node->Describe()));
      }
      if (x.node->id() < size) depends_[x.node->id()] = true;
      is_x_[x] = true;
    }
    for (int64_t id = 0; id < size; ++id) {
      const Node& node = *graph.nodes()[id];
      // Gradients end here, so that what lies behind needs none.
      if (node.def().gradient == Gradient::kZero) continue;
      for (const Output& input : node.inputs()) {
        // A node depends on an x through that very output, not through a sibling of it.
        if (is_x_.contains(input) || (depends_[input.node->id()] && !OnlyAnX(*input.node)))
          depends_[id] = true;
      }
    }
  }

  void Arrive(Output at, GradientValue gradient) { arrived_[at].push_back(gradient); }

  void Visit(const Node& node) {
    std::vector<GradientValue> gradients;
    bool any = false;
    for (int i = 0; i < node.num_outputs(); ++i) {
      gradients.push_back(Sum(node.output(i)));
      any = any || !gradients.back().empty();
    }
    if (!any || !depends_[node.id()] || OnlyAnX(node)) return;
    const OpDef& def = node.def();
    if (def.gradient == Gradient::kZero) return;
    const GradientFunction* function = GradientRegistry::Global().Find(node.op());
    if (def.gradient == Gradient::kNone || function == nullptr) {
      throw Error(Code::kUnimplemented,
                  fmt::format("Gradients: {} lies on the path but the op {} has no gradient; use "
                              "StopGradient before it if none is wanted",
                              node.Describe(), node.op()));
    }
    NameScope scope(graph_, node.name());
    DeviceScope device(graph_, node);
    GradientContext context(node, std::move(gradients));
    std::vector<bool> needed;
    for (const Output& input : node.inputs()) {
      needed.push_back(is_x_.contains(input) ||
                       (depends_[input.node->id()] && !OnlyAnX(*input.node)));
    }
    context.SetNeeded(needed);
    (*function)(context);
    for (int i = 0; i < node.num_inputs(); ++i) {
      if (needed[i] && !context.inputs()[i].empty()) Arrive(node.input(i), context.inputs()[i]);
    }
  }

  // The sum of what arrived at an output, kept for the xs.
  GradientValue Sum(Output at) {
    const auto it = arrived_.find(at);
    if (it == arrived_.end()) return {};
    std::vector<GradientValue>& parts = it->second;
    if (parts.size() > 1) parts = {Added(parts, at)};
    return parts.front();
  }

 private:
  // A node that is itself an x and has no gradient of its own to pass on further up.
  bool OnlyAnX(const Node& node) const {
    for (const Output& input : node.inputs()) {
      if (is_x_.contains(input) || depends_[input.node->id()]) return false;
    }
    return true;
  }

  // Gradients that come from one device are added there, so that one of them travels; others where
  // the value is: the sum over towers is made beside the variable.
  static const Node& PlaceOfSum(const std::vector<GradientValue>& parts, Output at) {
    const auto node = [](const GradientValue& part) -> const Node& {
      return *(part.sparse() ? part.rows : part.dense).node;
    };
    const Node& first = node(parts.front());
    for (const GradientValue& part : parts) {
      if (node(part).device() != first.device() ||
          node(part).colocated_with() != first.colocated_with()) {
        return *at.node;
      }
    }
    return first;
  }

  GradientValue Added(const std::vector<GradientValue>& parts, Output at) {
    const DeviceScope device(graph_, PlaceOfSum(parts, at));
    bool all_sparse = true;
    for (const GradientValue& part : parts) all_sparse = all_sparse && part.sparse();
    std::vector<Output> first;
    std::vector<Output> second;
    if (all_sparse) {
      for (const GradientValue& part : parts) {
        first.push_back(part.indices);
        second.push_back(part.rows);
      }
      return {{}, Concat(first, 0), Concat(second, 0)};
    }
    for (const GradientValue& part : parts) first.push_back(Densify(part, at));
    return {AddN(first)};
  }

  Graph& graph_;
  std::vector<bool> depends_;
  std::unordered_map<Output, bool, OutputHash> is_x_;
  std::unordered_map<Output, std::vector<GradientValue>, OutputHash> arrived_;
};

}  // namespace

Output Densify(const GradientValue& gradient, Output x) {
  if (!gradient.sparse()) return gradient.dense;
  // ScatterNd sums the rows of an index that stands there several times.
  const Output column = ExpandDims(gradient.indices, -1);
  return ScatterNd(column, gradient.rows, ShapeOf(x, gradient.indices.dtype()));
}

namespace {

// Nobody else looks at them before they are dereferenced.
void CheckGiven(std::span<const Output> outputs, const char* what) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Output& output = outputs[i];
    if (!output) {
      ThrowInvalidArgument(fmt::format("Gradients: {} {} is empty (default-constructed)", what, i));
    }
    if (output.index < 0 || output.index >= output.node->num_outputs()) {
      ThrowInvalidArgument(fmt::format("Gradients: {} {} is output {} of {}, which has {}", what, i,
                                       output.index, output.node->Describe(),
                                       output.node->num_outputs()));
    }
  }
}

// A gradient of another shape would be broadcast on its way, and give wrong values without a word.
void CheckInitial(Output y, Output initial, size_t i) {
  // Inside If and While, a gradient may also come from around.
  const Graph* graph = &y.graph();
  while (graph != nullptr && graph != &initial.graph()) graph = graph->parent();
  if (graph == nullptr) {
    ThrowInvalidArgument(
        fmt::format("Gradients: initial gradient {}, {}, belongs to another graph "
                    "than its y {}",
                    i, initial.node->Describe(), y.node->Describe()));
  }
  if (initial.dtype() != y.dtype() || !initial.shape().CompatibleWith(y.shape())) {
    ThrowInvalidArgument(
        fmt::format("Gradients: initial gradient {}, {}, is {} {}; expected {} {}, as its y {}", i,
                    initial.node->Describe(), NameOf(initial.dtype()), initial.shape().ToString(),
                    NameOf(y.dtype()), y.shape().ToString(), y.node->Describe()));
  }
}

}  // namespace

std::vector<GradientValue> SparseGradients(std::span<const Output> ys, std::span<const Output> xs,
                                           const GradientsOptions& options) {
  if (ys.empty()) ThrowInvalidArgument("Gradients: no ys given");
  if (!options.initial.empty() && options.initial.size() != ys.size()) {
    ThrowInvalidArgument(fmt::format("Gradients: {} initial gradients given for {} ys",
                                     options.initial.size(), ys.size()));
  }
  CheckGiven(ys, "y");
  CheckGiven(xs, "x");
  CheckGiven(options.initial, "initial gradient");
  for (size_t i = 0; i < options.initial.size(); ++i) CheckInitial(ys[i], options.initial[i], i);
  Graph& graph = ys.front().graph();
  int64_t last = 0;
  for (const Output& y : ys) {
    if (&y.graph() != &graph) {
      ThrowInvalidArgument(fmt::format("Gradients: {} and {} belong to different graphs",
                                       ys.front().node->Describe(), y.node->Describe()));
    }
    if (!IsFloating(y.dtype())) {
      ThrowInvalidArgument(
          fmt::format("Gradients: {} is {}; only floating-point values have gradients",
                      y.node->Describe(), NameOf(y.dtype())));
    }
    last = std::max(last, y.node->id());
  }
  ReversePass pass(graph, last + 1, xs);
  NameScope scope(graph, "gradients");
  for (size_t i = 0; i < ys.size(); ++i) {
    pass.Arrive(ys[i], {options.initial.empty() ? OnesLike(ys[i]) : options.initial[i]});
  }
  for (int64_t id = last; id >= 0; --id) pass.Visit(*graph.nodes()[id]);
  std::vector<GradientValue> result;
  for (const Output& x : xs) result.push_back(pass.Sum(x));
  return result;
}

std::vector<Output> Gradients(std::span<const Output> ys, std::span<const Output> xs,
                              const GradientsOptions& options) {
  std::vector<Output> result;
  const auto gradients = SparseGradients(ys, xs, options);
  for (size_t i = 0; i < xs.size(); ++i) {
    result.push_back(gradients[i].empty() ? ZerosLike(xs[i]) : Densify(gradients[i], xs[i]));
  }
  return result;
}

}  // namespace tutti
