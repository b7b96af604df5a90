// Lets kernels write gradients directly into communication buffers. The values of a bucket
// (AllReduce, Broadcast) are pinned, in the program's memory table, to one arena of registered
// memory, in the order of the bucket's inputs (BucketOffsets). Peers on the host read and write
// them in place, so nothing is packed or unpacked.
//
// The collective changes its inputs. A value that somebody else reads too, that is fetched, that no
// kernel writes (a feed, a constant, a variable's own buffer), or that lies in another bucket
// already, is copied in by a _Copy. What leaves the step is copied out, because the next step
// writes the same memory.
//
// Runs last, after ChooseLayouts: a _Reorder of that pass may be what writes the value.
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/device/device.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/collective.h"

namespace tutti {
namespace {

bool IsBucket(const Node& node) { return node.def().bucket; }

bool ShapesKnown(const Node& node) {
  for (const Output& input : node.inputs()) {
    if (!input.shape().IsFullyKnown()) return false;
  }
  return true;
}

// May the step plan choose where this output lies?
bool HasOwnMemory(Output value) {
  const OpDef& def = value.node->def();
  if (def.async || def.provides_outputs || def.view || def.source) return false;
  for (const Output& input : value.node->inputs()) {
    if (!input.shape().IsFullyKnown()) return false;
  }
  for (int i = 0; i < value.node->num_outputs(); ++i) {
    if (!value.node->type(i).shape.IsFullyKnown()) return false;
  }
  return true;
}

class BucketPlacer {
 public:
  explicit BucketPlacer(const Program& program)
      : program_(program),
        uses_(program),
        copy_(program),
        fetched_(program.fetches.begin(), program.fetches.end()) {}

  absl::StatusOr<Program> Run() {
    for (const auto& node : program_.graph->nodes()) {
      if (IsBucket(*node) && ShapesKnown(*node)) FindPins(*node);
    }
    for (const auto& node : program_.graph->nodes()) TUTTI_RETURN_IF_ERROR(Visit(*node));
    return copy_.Finish();
  }

 private:
  // The value whose bytes `value` shows, if nobody but views on the way and `reader` sees it.
  Output OnlyReadBy(Output value) const {
    while (!fetched_.contains(value) && uses_.of(value) == 1 && value.node->def().view) {
      value = value.node->input(0);
    }
    return !fetched_.contains(value) && uses_.of(value) == 1 ? value : Output();
  }

  void FindPins(const Node& bucket) {
    std::vector<ValueType> types;
    for (const Output& input : bucket.inputs()) types.push_back({input.dtype(), input.shape()});
    const std::vector<int64_t> offsets = BucketOffsets(types);
    const int arena = copy_.memory().AddArena(bucket.name(), std::string(kRegisteredMemory));
    for (int i = 0; i < bucket.num_inputs(); ++i) {
      const Pin pin = {arena, size_t(offsets[size_t(i)])};
      const Output source = OnlyReadBy(bucket.input(i));
      if (source && HasOwnMemory(source) && !pins_.contains(source)) {
        pins_[source] = pin;
      } else {
        copied_in_[&bucket][i] = pin;
      }
    }
  }

  absl::Status Visit(const Node& node) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy_.SpecOf(node));
    if (const auto found = copied_in_.find(&node); found != copied_in_.end()) {
      for (const auto& [i, pin] : found->second) {
        TUTTI_ASSIGN_OR_RETURN(spec.inputs[size_t(i)], CopyOf(spec.inputs[size_t(i)], node));
        copy_.memory().SetPin(spec.inputs[size_t(i)], pin);
      }
    }
    TUTTI_ASSIGN_OR_RETURN(Node * made, copy_.AddAs(node, std::move(spec)));
    for (int i = 0; i < node.num_outputs(); ++i) {
      const auto found = pins_.find(node.output(i));
      if (found != pins_.end()) copy_.memory().SetPin(made->output(i), found->second);
    }
    if (!IsBucket(node)) return absl::OkStatus();
    if (ShapesKnown(node)) copy_.memory().joined_buckets.insert(made->id());
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (!Leaves(node.output(i))) continue;
      TUTTI_ASSIGN_OR_RETURN(const Output copy, CopyOf(made->output(i), node));
      copy_.Map(node.output(i), copy);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Output> CopyOf(Output value, const Node& bucket) {
    NodeSpec spec;
    spec.op = "_Copy";
    spec.name = copy_.to().UniqueName(bucket.name() + "/copy");
    spec.inputs = {value};
    spec.device = bucket.device();
    spec.where = bucket.where();
    TUTTI_ASSIGN_OR_RETURN(const Node* made, AddNode(copy_.to(), std::move(spec)));
    return made->output(0);
  }

  // Is the value, or a view of it, held for longer than the step?
  bool Leaves(Output value) const {
    std::vector<Output> open = {value};
    while (!open.empty()) {
      const Output next = open.back();
      open.pop_back();
      if (fetched_.contains(next)) return true;
      for (const Node* consumer : uses_.consumers(next)) {
        if (consumer->def().may_keep_inputs()) return true;
        if (consumer->def().view) open.push_back(consumer->output(0));
      }
    }
    return false;
  }

  const Program& program_;
  const UseCounts uses_;
  ProgramCopy copy_;
  const std::unordered_set<Output, OutputHash> fetched_;
  std::unordered_map<Output, Pin, OutputHash> pins_;
  std::unordered_map<const Node*, std::map<int, Pin>> copied_in_;  // by bucket and input
};

}  // namespace

absl::StatusOr<Program> PlaceBuckets(Program program, const PassContext& context) {
  if (!HasNode(program, IsBucket) || !HasKernel(context, "_Copy", kFloat32)) return program;
  return BucketPlacer(program).Run();
}

}  // namespace tutti
