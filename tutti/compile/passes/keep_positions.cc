// Frees the input of a max-pooling right after the pooling, although the gradients of the pooling
// and of the activation before it read it in the graph as built.
//
// The gradient of a max-pooling needs of x and y only where the maxima were: the forward pass notes
// that, a byte for each pooled element.
//   y = MaxPool(x)                     y, positions = _MaxPoolWithPositions(x)
//   dx = MaxPoolGrad(x, y, dy)    ->   dx = _MaxPoolGradWithPositions(dy, positions)
//
// The gradient of a Relu or Relu6 is dy or 0, by the Relu's result. Of a window only the maximum
// gets a gradient, so it is all the same whether the gradient is masked behind the pooling by x or
// before it by y; and y is smaller, and needed for the next layer anyway.
//   g = MaxPoolGrad(x, y, dy)          m = ReluGrad(dy, y)
//   dx = ReluGrad(g, x)           ->   dx = MaxPoolGrad(x, y, m)
// Not a bit changes: what is 0 or summed behind the pooling is 0 or summed, in the same order,
// before it. (Activations that scale would round otherwise where windows overlap, and turn 0 into
// NaN at infinities.)
//
// A step of the benchmarks' CNN at batch 256 has its peak in the gradient of the first pooling,
// which reads the first convolution's result and writes as much, 26 MB each: without this pass 67
// MB of tensors, with it 36. At batch 64 the step takes 22.2 ms in place of 24.6 on one core.
//
// Before FuseElementwise, which may hide the ReluGrad. A gradient that is fetched is left as it is:
// it has to be row-major, and positions lie as their pooling does.
#include <unordered_map>
#include <unordered_set>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/conv_window.h"

namespace tutti {
namespace {

constexpr int kX = 0;
constexpr int kY = 1;
constexpr int kDy = 2;

bool IsPoolGradient(const Node& node) { return node.op() == "MaxPoolGrad"; }

class PositionKeeper {
 public:
  PositionKeeper(const Program& program, const PassContext& context)
      : program_(program),
        kind_(context.device != nullptr ? context.device->type() : "cpu"),
        uses_(program),
        copy_(program),
        fetched_(program.fetches.begin(), program.fetches.end()) {}

  // False if there is nothing to do.
  bool Find() {
    for (const auto& node : program_.graph->nodes()) Find(*node);
    return !masked_.empty() || !by_position_.empty();
  }

  absl::StatusOr<Program> Run() {
    for (const auto& node : program_.graph->nodes()) TUTTI_RETURN_IF_ERROR(Visit(*node));
    return copy_.Finish();
  }

 private:
  // Notes what is to be done at `node`, if it is the gradient of a MaxPool of this program.
  void Find(const Node& node) {
    if (!IsPoolGradient(node)) return;
    const Node& pool = *node.input(kY).node;
    if (pool.op() != "MaxPool" || pool.input(kX) != node.input(kX) || !SameWindow(pool, node)) {
      return;
    }
    const Node* mask = MaskOf(node);
    if (mask != nullptr) {
      masked_[mask] = &node;
      behind_mask_.insert(&node);
    }
    const Node& result = mask != nullptr ? *mask : node;
    // A gradient of unknown shape would be row-major. (A mask has the shape of y.)
    const bool known = mask != nullptr || node.input(kDy).shape().IsFullyKnown();
    if (known && !fetched_.contains(result.output()) && CanTellPositions(pool)) {
      by_position_.insert(&node);
      pools_[&pool] = {};
    }
  }

  static bool SameWindow(const Node& a, const Node& b) {
    for (const char* name : {"window", "strides", "padding"}) {
      if (!AttrEquals(*a.FindAttr(name), *b.FindAttr(name))) return false;
    }
    return true;
  }

  // The gradient of an activation that made x, if it is all that reads the pooling's gradient.
  const Node* MaskOf(const Node& gradient) const {
    if (uses_.of(gradient.output()) != 1 || uses_.HasControlSuccessor(gradient)) return nullptr;
    const auto& readers = uses_.consumers(gradient.output());
    if (readers.size() != 1) return nullptr;  // it is fetched
    const Node& reader = *readers.front();
    const bool masks = reader.op() == "ReluGrad" || reader.op() == "Relu6Grad";
    if (!masks || !reader.control_inputs().empty()) return nullptr;
    const bool matches =
        reader.input(0) == gradient.output() && reader.input(1) == gradient.input(kX);
    return matches ? &reader : nullptr;
  }

  bool CanTellPositions(const Node& pool) const {
    const auto& window = pool.attr<std::vector<int64_t>>("window");
    const auto has_kernel = [&](std::string_view op) {
      return KernelRegistry::Global().FindExact(op, kind_, pool.type(0).dtype) != nullptr;
    };
    return window[0] <= kMostPoolPositions / window[1] && pool.input(kX).shape().IsFullyKnown() &&
           has_kernel("_MaxPoolWithPositions") && has_kernel("_MaxPoolGradWithPositions");
  }

  absl::Status Visit(const Node& node) {
    if (behind_mask_.contains(&node)) return absl::OkStatus();  // made where its mask stood
    if (const auto it = masked_.find(&node); it != masked_.end()) {
      TUTTI_ASSIGN_OR_RETURN(const Output masked, AddMask(node, *it->second));
      return AddGradient(*it->second, masked, node);
    }
    if (by_position_.contains(&node)) return AddGradient(node, copy_.Mapped(node.input(kDy)), node);
    if (const auto it = pools_.find(&node); it != pools_.end()) {
      TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy_.SpecOf(node));
      spec.op = "_MaxPoolWithPositions";
      TUTTI_ASSIGN_OR_RETURN(const Node* pool, copy_.AddAs(node, std::move(spec)));
      it->second = pool->output(1);
      return absl::OkStatus();
    }
    return copy_.Copy(node).status();
  }

  // `mask`, on dy and y in place of dx and x.
  absl::StatusOr<Output> AddMask(const Node& mask, const Node& gradient) {
    NodeSpec spec = mask.spec();
    spec.name = copy_.to().UniqueName(mask.name() + "/pooled");
    spec.inputs = {copy_.Mapped(gradient.input(kDy)), copy_.Mapped(gradient.input(kY))};
    TUTTI_ASSIGN_OR_RETURN(const Node* node, AddNode(copy_.to(), std::move(spec)));
    return node->output();
  }

  // The pooling's gradient of `dy` of the copy, in place of `replaced` and under its name.
  absl::Status AddGradient(const Node& gradient, Output dy, const Node& replaced) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy_.SpecOf(gradient));
    spec.name = replaced.name();
    if (by_position_.contains(&gradient)) {
      spec.op = "_MaxPoolGradWithPositions";
      spec.inputs = {dy, pools_.at(gradient.input(kY).node)};
      SetAttr(spec.attrs, "x_shape", gradient.input(kX).shape());
    } else {
      spec.inputs[kDy] = dy;
    }
    return copy_.AddAs(replaced, std::move(spec)).status();
  }

  const Program& program_;
  const std::string kind_;
  const UseCounts uses_;
  ProgramCopy copy_;
  const std::unordered_set<Output, OutputHash> fetched_;
  std::unordered_map<const Node*, const Node*> masked_;  // mask -> the gradient of the pooling
  std::unordered_set<const Node*> behind_mask_;          // those gradients
  std::unordered_set<const Node*> by_position_;          // gradients that need neither x nor y
  std::unordered_map<const Node*, Output> pools_;        // their poolings -> positions in the copy
};

}  // namespace

absl::StatusOr<Program> KeepPositions(Program program, const PassContext& context) {
  if (!HasNode(program, IsPoolGradient)) return program;
  PositionKeeper keeper(program, context);
  if (!keeper.Find()) return program;
  return keeper.Run();
}

}  // namespace tutti
