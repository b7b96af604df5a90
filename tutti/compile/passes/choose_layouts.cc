// Gives images the layouts that convolutions are fastest with, and keeps them so along chains.
//
// One walk forward. A kernel with a preferred layout (a convolution) gets it: an input in another
// layout goes through a _Reorder, and its output has that layout. A kernel that works in any
// layout (element-wise, pooling, a bias) takes the one that most of its bytes come in, so that a
// chain of convolution, activation, pooling and convolution stays blocked, and so does its way
// back. All other kernels get row-major. A value is reordered at most once into each layout. What
// leaves the plan (fetched, sent, written to a variable) is row-major, since only kernels without a
// wish do that, and a fetched value is never made in another layout.
//
// Runs after all passes that change what is computed: layouts are in the program's memory table, by
// value, and a pass that does not know them would join values that lie differently.
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"

namespace tutti {
namespace {

// The dtype of the positions that _MaxPoolWithPositions makes, which are shaped like an image.
constexpr DType kPositions = kUInt8;

class LayoutChooser {
 public:
  LayoutChooser(const Program& program, const PassContext& context)
      : program_(program),
        kind_(context.device != nullptr ? context.device->type() : "cpu"),
        copy_(program),
        fetched_(program.fetches.begin(), program.fetches.end()) {}

  absl::StatusOr<Program> Run() {
    for (const auto& node : program_.graph->nodes()) {
      TUTTI_RETURN_IF_ERROR(Visit(*node));
    }
    return copy_.Finish();
  }

 private:
  // The layouts that a node will have.
  struct Choice {
    std::vector<Layout> inputs;
    std::vector<Layout> outputs;
  };

  absl::Status Visit(const Node& node) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy_.SpecOf(node));
    const Choice choice = Choose(node, spec.inputs);
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      TUTTI_ASSIGN_OR_RETURN(spec.inputs[i], InLayout(spec.inputs[i], choice.inputs[i], node));
    }
    TUTTI_ASSIGN_OR_RETURN(Node * made, copy_.AddAs(node, std::move(spec)));
    for (int i = 0; i < made->num_outputs(); ++i) {
      copy_.memory().SetLayout(made->output(i), choice.outputs[size_t(i)]);
    }
    return absl::OkStatus();
  }

  Choice Choose(const Node& node, const std::vector<Output>& inputs) const {
    Choice choice = {std::vector<Layout>(inputs.size()),
                     std::vector<Layout>(size_t(node.num_outputs()))};
    if (!AllKnown(node)) return choice;
    const KernelDef* kernel = KernelRegistry::Global().Find(node.op(), kind_, KernelDType(node));
    if (kernel == nullptr) return choice;
    if (kernel->layout_wish) {
      Wish(node, *kernel, choice);
    } else if (kernel->any_layout || kernel->image_layouts) {
      Follow(node, inputs, kernel->image_layouts, choice);
    }
    return choice;
  }

  static bool AllKnown(const Node& node) {
    for (const Output& input : node.inputs()) {
      if (!input.shape().IsFullyKnown()) return false;
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (!node.type(i).shape.IsFullyKnown()) return false;
    }
    return true;
  }

  bool Fetched(const Node& node) const {
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (fetched_.contains(node.output(i))) return true;
    }
    return false;
  }

  void Wish(const Node& node, const KernelDef& kernel, Choice& choice) const {
    std::vector<ValueType> inputs, outputs;
    for (const Output& input : node.inputs()) inputs.push_back({input.dtype(), input.shape()});
    for (int i = 0; i < node.num_outputs(); ++i) outputs.push_back(node.type(i));
    LayoutWish wish = kernel.layout_wish(node, inputs, outputs);
    choice.inputs = std::move(wish.inputs);
    if (!Fetched(node)) choice.outputs = std::move(wish.outputs);
  }

  // The layout of most bytes among the inputs that have one; blocked if in doubt, because the next
  // convolution will ask for it.
  void Follow(const Node& node, const std::vector<Output>& inputs, bool images,
              Choice& choice) const {
    if (Fetched(node)) return;
    const auto takes = [&](const ValueType& type) {
      if (type.dtype != kFloat32 && !(images && type.dtype == kPositions)) return false;
      return images ? type.shape.rank() == 4 : type.shape == node.type(0).shape;
    };
    std::map<std::string, int64_t> votes;
    for (const Output& input : inputs) {
      const ValueType type = {input.dtype(), input.shape()};
      if (takes(type)) {
        votes[memory().LayoutOf(input).tag()] += type.shape.elements();
      } else if (!images && input.shape().elements() != 1) {
        return;  // an operand is spread over the others: only row-major tells how
      }
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (!images && node.type(i).shape != node.type(0).shape) return;
    }
    Layout best;
    for (const auto& [tag, count] : votes) {
      if (!tag.empty() && count >= votes[""]) best = Layout(tag);
    }
    // Nothing reorders the positions of maxima: they lie as the pooling left them.
    for (const Output& input : inputs) {
      if (images && input.dtype() == kPositions) best = memory().LayoutOf(input);
    }
    if (best.row_major()) return;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (takes({inputs[i].dtype(), inputs[i].shape()})) choice.inputs[i] = best;
    }
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (takes(node.type(i))) choice.outputs[size_t(i)] = best;
    }
  }

  // `value` in `layout`, through a _Reorder unless it lies so already.
  absl::StatusOr<Output> InLayout(Output value, const Layout& layout, const Node& reader) {
    if (memory().LayoutOf(value) == layout) return value;
    Output& reordered = reordered_[value][layout.tag()];
    if (reordered) return reordered;
    NodeSpec spec = {.op = "_Reorder",
                     .name = copy_.to().UniqueName(value.node->name() + "/reorder"),
                     .inputs = {value},
                     .device = reader.device(),
                     .where = reader.where()};
    TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(copy_.to(), std::move(spec)));
    reordered = node->output();
    copy_.memory().SetLayout(reordered, layout);
    return reordered;
  }

  const MemoryTable& memory() const { return copy_.memory(); }

  const Program& program_;
  const std::string kind_;
  ProgramCopy copy_;
  std::unordered_set<Output, OutputHash> fetched_;
  std::unordered_map<Output, std::map<std::string, Output>, OutputHash> reordered_;
};

}  // namespace

absl::StatusOr<Program> ChooseLayouts(Program program, const PassContext& context) {
  if (!HasKernel(context, "_Reorder", kFloat32)) return program;
  return LayoutChooser(program, context).Run();
}

}  // namespace tutti
