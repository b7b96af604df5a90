// The gradients of If and While compute the branch or body a second time, inside an If or While of
// their own, and differentiate that copy there.
//
// If: on the same predicate, each branch gives the gradients of what it used.
//
// While: backwards over i = iterations-1 .. 0. The loop variables' values at the start of iteration
// i come from the forward loop's record of them; the body is computed again from these, and the
// gradients of what it returned become those of what it was given. The loop variables of the
// backward loop are i, the gradients of the (floating-point) loop variables, and the sums of the
// gradients of captured values. A gradient that arrives at the record itself (second derivatives)
// is added row by row on the way.
#include "tutti/autodiff/register.h"
#include "tutti/graph/build.h"
#include "tutti/graph/inline.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {
namespace {

using SubgraphPtr = std::shared_ptr<const Subgraph>;

// The captured inputs (from `first` on) that need a gradient.
std::vector<int> NeededCaptures(const GradientContext& g, int first) {
  std::vector<int> needed;
  for (int i = first; i < g.node().num_inputs(); ++i) {
    if (g.NeedsInput(i) && IsFloating(g.input(i).dtype())) needed.push_back(i);
  }
  return needed;
}

void IfGradient(GradientContext& g) {
  const Node& node = g.node();
  const std::vector<int> needed = NeededCaptures(g, 1);
  std::vector<int> outputs;
  std::vector<Output> arrived;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (const Output gradient = g.gradient(i)) {
      outputs.push_back(i);
      arrived.push_back(gradient);
    }
  }
  if (needed.empty() || outputs.empty()) return;
  const auto branch = [&](const char* attr) {
    return [&, attr] {
      std::vector<Output> args;
      for (int i = 1; i < node.num_inputs(); ++i) args.push_back(Identity(g.input(i)));
      const std::vector<Output> results =
          InlineSubgraph(*node.attr<SubgraphPtr>(attr), args, *SubgraphBeingBuilt());
      std::vector<Output> ys, xs;
      for (size_t k = 0; k < outputs.size(); ++k) {
        ys.push_back(results[outputs[k]]);
      }
      for (const int i : needed) xs.push_back(args[i - 1]);
      return Gradients(ys, xs, {.initial = arrived});
    };
  };
  const std::vector<Output> gradients =
      If(g.input(0), branch("then_branch"), branch("else_branch"));
  for (size_t k = 0; k < needed.size(); ++k) g.Set(needed[k], gradients[k]);
}

// The backward loop of one While.
class WhileGradient {
 public:
  explicit WhileGradient(GradientContext& g)
      : g_(g),
        node_(g.node()),
        body_(*node_.attr<SubgraphPtr>("body")),
        count_(NumLoopVariables(node_)),
        captures_(NeededCaptures(g, count_)) {
    for (int i = 0; i < count_; ++i) {
      if (IsFloating(node_.type(i).dtype)) real_.push_back(i);
    }
  }

  void Build() {
    std::vector<Output> initial = {Sub(g_.output(2 * count_), 1)};
    for (const int i : real_) {
      initial.push_back(g_.GradientOrZeros(i));
      record_gradients_.push_back(g_.gradient(count_ + i));
    }
    for (const int i : captures_) initial.push_back(ZerosLike(g_.input(i)));
    // Shapes as the forward loop promises them, whatever more is known of the first values.
    std::vector<Shape> shapes = {Shape{}};
    for (const int i : real_) shapes.push_back(node_.type(i).shape);
    for (const int i : captures_) shapes.push_back(g_.input(i).shape());
    const std::vector<Output> end = While(
        initial, [](std::span<const Output> v) { return GreaterEqual(v[0], 0); },
        [this](std::span<const Output> v) { return Body(v); }, {.shapes = shapes});
    for (size_t k = 0; k < real_.size(); ++k) g_.Set(real_[k], end[1 + k]);
    for (size_t k = 0; k < captures_.size(); ++k) {
      g_.Set(captures_[k], end[1 + real_.size() + k]);
    }
  }

 private:
  std::vector<Output> Body(std::span<const Output> v) {
    const Output i = v[0];
    std::vector<Output> args;
    for (int k = 0; k < count_; ++k) args.push_back(Gather(g_.output(count_ + k), i));
    for (int k = count_; k < node_.num_inputs(); ++k) args.push_back(Identity(g_.input(k)));
    const std::vector<Output> results = InlineSubgraph(body_, args, *SubgraphBeingBuilt());
    std::vector<Output> ys, xs, arriving;
    for (size_t k = 0; k < real_.size(); ++k) {
      ys.push_back(results[real_[k]]);
      arriving.push_back(v[1 + k]);
      xs.push_back(args[real_[k]]);
    }
    for (const int k : captures_) xs.push_back(args[k]);
    const std::vector<Output> gradients = Gradients(ys, xs, {.initial = arriving});
    std::vector<Output> next = {Sub(i, 1)};
    for (size_t k = 0; k < real_.size(); ++k) {
      next.push_back(record_gradients_[k] ? Add(gradients[k], Gather(record_gradients_[k], i))
                                          : gradients[k]);
    }
    for (size_t k = real_.size(); k < gradients.size(); ++k) {
      next.push_back(Add(v[1 + k], gradients[k]));
    }
    return next;
  }

  GradientContext& g_;
  const Node& node_;
  const Subgraph& body_;
  const int count_;                       // loop variables of the forward loop
  const std::vector<int> captures_;       // inputs of the node that need a gradient
  std::vector<int> real_;                 // the floating-point ones of the loop variables
  std::vector<Output> record_gradients_;  // parallel to real_; mostly empty
};

}  // namespace

void RegisterControlGradients(GradientRegistry& registry) {
  registry.Add("CheckNumerics", [](GradientContext& g) {
    const std::string& message = g.node().attr<std::string>("message");
    g.Set(0, CheckNumerics(g.gradient(), message.empty() ? "gradient" : message + ", gradient"));
  });
  registry.Add("Print", [](GradientContext& g) { g.Set(0, g.gradient()); });
  registry.Add("If", IfGradient);
  registry.Add("While", [](GradientContext& g) { WhileGradient(g).Build(); });
}

}  // namespace tutti
