// The nodes that are needed are copied one by one into a second graph whose feeds have concrete
// shapes, so that the shape functions tell what each kernel will be given; where they cannot (the
// size of a Unique), an Arg with the shape that the kernel returned stands in for the rest of the
// graph. Each copied node is prepared and computed at once.
#include "tutti/testing/kernel_runner.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "tutti/base/team.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti::testing {
namespace {

constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xA5;
constexpr unsigned char kPoison = 0xFF;  // NaN for every floating type, -1 for integers

// A block of poison with a guard behind it.
class GuardedBlock {
 public:
  explicit GuardedBlock(size_t size) : size_(size), buffer_(AllocateBuffer(size + kGuardBytes)) {
    std::memset(buffer_->data(), kPoison, size_);
    std::memset(static_cast<char*>(buffer_->data()) + size_, kGuard, kGuardBytes);
  }
  const BufferRef& buffer() const { return buffer_; }
  bool Intact() const {
    const auto* guard = static_cast<const unsigned char*>(buffer_->data()) + size_;
    for (size_t i = 0; i < kGuardBytes; ++i) {
      if (guard[i] != kGuard) return false;
    }
    return true;
  }

 private:
  size_t size_;
  BufferRef buffer_;
};

class WaitForNode final : public Completion {
 public:
  void NodeDone(uint32_t, absl::Status status) override {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_.notify_all();
  }
  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<absl::Status> status_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const Node& node, KernelChoice choice,
                                                   const KernelDef*& def) {
  const KernelRegistry& registry = KernelRegistry::Global();
  const DType dtype = KernelDType(node);
  switch (choice) {
    case KernelChoice::kReference:
      def = registry.FindExact(node.op(), "ref", dtype);
      break;
    case KernelChoice::kCpuOnly:
      def = registry.FindExact(node.op(), "cpu", dtype);
      break;
    case KernelChoice::kCpu:
      def = registry.Find(node.op(), "cpu", dtype);
      break;
  }
  if (def == nullptr) {
    return NotFound("there is no {} kernel for {}; registered: {}",
                    choice == KernelChoice::kReference ? "ref" : "cpu", NameOf(dtype),
                    registry.Describe(node.op()));
  }
  return def->make();
}

}  // namespace

// One call of KernelRunner::Run.
class GraphRun {
 public:
  GraphRun(KernelRunner& runner, const Feeds& feeds) : runner_(runner), feeds_(feeds) {
    step_.random_step = runner.random_step_;
    step_.cancellation = &cancellation_;
    step_.device = &runner.device_;
  }

  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Output> fetches,
                                          std::span<const Node* const> targets) {
    if (fetches.empty() && targets.empty()) return std::vector<Tensor>();
    const Graph& graph = fetches.empty() ? targets[0]->graph() : fetches[0].graph();
    consumed_.insert(fetches.begin(), fetches.end());
    std::vector<bool> needed(graph.size(), false);
    for (const Output& fetch : fetches) {
      if (!feeds_.contains(fetch)) needed[fetch.node->id()] = true;
    }
    for (const Node* target : targets) needed[target->id()] = true;
    for (int64_t id = graph.size() - 1; id >= 0; --id) {
      if (!needed[id]) continue;
      for (const Output& input : graph.nodes()[id]->inputs()) {
        if (!feeds_.contains(input)) needed[input.node->id()] = true;
        consumed_.insert(input);
      }
      for (const Node* control : graph.nodes()[id]->control_inputs()) needed[control->id()] = true;
    }
    for (const auto& [output, value] : feeds_) {
      // A captured variable keeps its name, so that updates inside find it.
      AttrList attrs = output.node->op() == "Arg" ? output.node->attrs() : AttrList();
      const bool named = output.index == 0 && !needed[output.node->id()];
      TUTTI_ASSIGN_OR_RETURN(copies_[output],
                             StandIn(value, std::move(attrs), named ? output.node->name() : ""));
      values_[output] = value;
    }
    for (int64_t id = 0; id < graph.size(); ++id) {
      if (!needed[id]) continue;
      const Node& node = *graph.nodes()[id];
      if (const absl::Status status = RunNode(node); !status.ok()) {
        return WithPrefix(status, node.Describe() + ": ");
      }
    }
    std::vector<Tensor> results;
    for (const Output& fetch : fetches) results.push_back(values_.at(fetch));
    return results;
  }

 private:
  absl::StatusOr<Output> StandIn(const Tensor& value, AttrList attrs = {},
                                 const std::string& name = "") {
    SetAttr(attrs, "dtype", value.dtype());
    SetAttr(attrs, "shape", value.shape());
    TUTTI_ASSIGN_OR_RETURN(
        Node * node, AddNode(concrete_, {.op = "Arg", .name = name, .attrs = std::move(attrs)}));
    return node->output();
  }

  absl::Status RunNode(const Node& node) {
    if (node.op() == "Placeholder" || node.op() == "Arg") {
      return InvalidArgument("needs a feed and has none");
    }
    NodeSpec spec = node.spec();
    for (Output& input : spec.inputs) input = copies_.at(input);
    spec.control_inputs.clear();
    TUTTI_ASSIGN_OR_RETURN(Node * copy, AddNode(concrete_, std::move(spec)));
    std::vector<Tensor> inputs;
    for (const Output& input : node.inputs()) inputs.push_back(values_[input]);
    std::vector<Tensor> outputs(copy->num_outputs());
    if (node.op() == "Constant") {
      outputs[0] = node.attr<Tensor>("value");
    } else if (node.op() == "If") {
      TUTTI_RETURN_IF_ERROR(RunIf(node, inputs, outputs));
    } else if (node.op() == "While") {
      TUTTI_RETURN_IF_ERROR(RunWhile(node, inputs, outputs));
    } else if (node.op() != "NoOp") {
      TUTTI_RETURN_IF_ERROR(RunKernel(*copy, inputs, outputs));
    }
    for (int i = 0; i < copy->num_outputs(); ++i) {
      const ValueType& promised = copy->type(i);
      // A Variable is passed by reference; only some ops give it a value.
      if (node.op() == "Variable" && !outputs[i].valid()) {
        copies_[node.output(i)] = copy->output(i);
        continue;
      }
      if (!outputs[i].valid()) return Internal("output {} was not set", i);
      if (outputs[i].dtype() != promised.dtype ||
          !outputs[i].shape().CompatibleWith(promised.shape)) {
        return Internal("output {} is {} {}; the shape function promised {} {}", i,
                        NameOf(outputs[i].dtype()), outputs[i].shape().ToString(),
                        NameOf(promised.dtype), promised.shape.ToString());
      }
      if (!node.type(i).shape.CompatibleWith(outputs[i].shape())) {
        return Internal("output {} has shape {}; the shape function promised {} from less", i,
                        outputs[i].shape().ToString(), node.type(i).shape.ToString());
      }
      values_[node.output(i)] = outputs[i];
      copies_[node.output(i)] = copy->output(i);
      if (!promised.shape.IsFullyKnown()) {
        TUTTI_ASSIGN_OR_RETURN(copies_[node.output(i)], StandIn(outputs[i]));
      }
    }
    return absl::OkStatus();
  }

  // A subgraph on these values.
  absl::StatusOr<std::vector<Tensor>> Call(const Subgraph& subgraph, std::span<const Tensor> args) {
    Feeds feeds;
    for (size_t i = 0; i < args.size(); ++i) feeds[subgraph.args[i]] = args[i];
    std::vector<const Node*> effects;
    for (const auto& node : subgraph.graph->nodes()) {
      if (node->def().stateful) effects.push_back(node.get());
    }
    return GraphRun(runner_, feeds).Run(subgraph.results, effects);
  }

  absl::Status RunIf(const Node& node, std::span<const Tensor> inputs,
                     std::vector<Tensor>& outputs) {
    const char* branch = inputs[0].scalar<bool>() ? "then_branch" : "else_branch";
    TUTTI_ASSIGN_OR_RETURN(
        outputs, Call(*node.attr<std::shared_ptr<const Subgraph>>(branch), inputs.subspan(1)));
    return absl::OkStatus();
  }

  absl::Status RunWhile(const Node& node, std::span<const Tensor> inputs,
                        std::vector<Tensor>& outputs) {
    const auto& condition = *node.attr<std::shared_ptr<const Subgraph>>("condition");
    const auto& body = *node.attr<std::shared_ptr<const Subgraph>>("body");
    const size_t count = body.results.size();
    const int64_t limit = node.attr<int64_t>("max_iterations");
    std::vector<Tensor> values(inputs.begin(), inputs.end());
    std::vector<std::vector<Tensor>> records(count);
    int64_t iterations = 0;
    while (limit == 0 || iterations < limit) {
      TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> test, Call(condition, values));
      if (!test[0].scalar<bool>()) break;
      TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> next, Call(body, values));
      for (size_t i = 0; i < count; ++i) {
        records[i].push_back(values[i]);
        values[i] = next[i];
      }
      ++iterations;
    }
    for (size_t i = 0; i < count; ++i) {
      outputs[i] = values[i];
      const bool recorded = consumed_.contains(node.output(int(count + i)));
      outputs[count + i] = Stack(recorded ? records[i] : std::vector<Tensor>(), inputs[i]);
    }
    outputs[2 * count] = Tensor::Scalar<int64_t>(iterations);
    return absl::OkStatus();
  }

  // [values.size(), ...]; `like` gives the type where there are none.
  static Tensor Stack(const std::vector<Tensor>& values, const Tensor& like) {
    Tensor stack(like.dtype(), like.shape().WithInserted(0, int64_t(values.size())));
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(static_cast<char*>(stack.raw()) + i * like.bytes(), values[i].raw(),
                  like.bytes());
    }
    return stack;
  }

  absl::Status RunKernel(const Node& node, std::vector<Tensor>& inputs,
                         std::vector<Tensor>& outputs) {
    const KernelDef* def = nullptr;
    TUTTI_ASSIGN_OR_RETURN(const std::unique_ptr<Kernel> kernel,
                           MakeKernel(node, runner_.choice_, def));
    std::vector<ValueType> input_types;
    for (const Output& input : node.inputs()) {
      input_types.push_back({input.dtype(), input.shape()});
    }
    std::vector<ValueType> output_types;
    for (int i = 0; i < node.num_outputs(); ++i) output_types.push_back(node.type(i));
    PrepareContext prepare(node, runner_.device_, input_types, output_types);
    const TeamScope team(runner_.device_.team());
    TUTTI_RETURN_IF_ERROR(kernel->Prepare(prepare));

    // Kernels work on copies, so that a changed input is noticed.
    std::vector<Tensor> given;
    for (const Tensor& input : inputs) given.push_back(input.valid() ? input.Clone() : input);
    std::vector<GuardedBlock> blocks;
    std::vector<bool> overwritten(inputs.size(), false);
    for (int i = 0; i < node.num_outputs(); ++i) {
      const ValueType& type = node.type(i);
      if (!type.shape.IsFullyKnown()) continue;
      const int shared = runner_.in_place_ ? SharedInput(*def, i, given, type, overwritten) : -1;
      if (shared >= 0) {
        outputs[i] = given[shared];
        overwritten[shared] = true;
        continue;
      }
      const size_t bytes = size_t(type.shape.elements()) * SizeOf(type.dtype);
      blocks.emplace_back(bytes);
      outputs[i] = Tensor(type.dtype, type.shape, blocks.back().buffer());
    }
    const GuardedBlock scratch(prepare.scratch_bytes());

    const auto input_pointers = PointersTo(given), output_pointers = PointersTo(outputs);
    WaitForNode wait;
    KernelContext context(
        &node, input_pointers, output_pointers,
        {static_cast<std::byte*>(scratch.buffer()->data()), prepare.scratch_bytes()});
    context.step = &step_;
    context.completion = &wait;
    if (AsyncKernel* async = kernel->AsAsync()) {
      async->Start(context);
      TUTTI_RETURN_IF_ERROR(wait.Wait());
    } else {
      TUTTI_RETURN_IF_ERROR(kernel->Compute(context));
    }

    for (const GuardedBlock& block : blocks) {
      if (!block.Intact()) return Internal("the kernel wrote past the end of an output");
    }
    if (!scratch.Intact()) return Internal("the kernel wrote past the end of its scratch memory");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].valid() && !overwritten[i] && !given[i].BitwiseEquals(inputs[i])) {
        return Internal("the kernel changed its input {}", i);
      }
    }
    return absl::OkStatus();
  }

  // The input whose memory output i may take, or -1.
  static int SharedInput(const KernelDef& def, int output, const std::vector<Tensor>& inputs,
                         const ValueType& type, const std::vector<bool>& taken) {
    for (const auto& [from, to] : def.in_place) {
      if (to == output && from < int(inputs.size()) && !taken[from] && inputs[from].valid() &&
          inputs[from].dtype() == type.dtype && inputs[from].shape() == type.shape) {
        return from;
      }
    }
    return -1;
  }

  KernelRunner& runner_;
  const Feeds& feeds_;
  Graph concrete_;
  std::unordered_map<Output, Output, OutputHash> copies_;  // into concrete_
  std::unordered_map<Output, Tensor, OutputHash> values_;
  std::unordered_set<Output, OutputHash> consumed_;
  Cancellation cancellation_;
  StepContext step_;
};

KernelRunner::KernelRunner(KernelChoice choice, int cores)
    : choice_(choice), device_("/job:local/task:0/cpu:0", cores) {}

absl::StatusOr<std::vector<Tensor>> KernelRunner::Run(const Feeds& feeds,
                                                      std::span<const Output> fetches,
                                                      std::span<const Node* const> targets) {
  auto results = GraphRun(*this, feeds).Run(fetches, targets);
  ++random_step_;
  return results;
}

absl::StatusOr<std::vector<Tensor>> KernelRunner::RunOp(std::string_view op,
                                                        std::span<const Tensor> inputs,
                                                        const AttrList& attrs) {
  Graph graph;
  Feeds feeds;
  NodeSpec spec{.op = std::string(op), .attrs = attrs};
  for (const Tensor& input : inputs) {
    TUTTI_ASSIGN_OR_RETURN(
        Node * node,
        AddNode(graph, {.op = "Placeholder",
                        .attrs = {{"dtype", input.dtype()}, {"shape", input.shape()}}}));
    feeds[node->output()] = input;
    spec.inputs.push_back(node->output());
  }
  TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(graph, std::move(spec)));
  std::vector<Output> fetches;
  for (int i = 0; i < node->num_outputs(); ++i) fetches.push_back(node->output(i));
  const Node* target = node;
  return Run(feeds, fetches, std::span(&target, 1));
}

}  // namespace tutti::testing
