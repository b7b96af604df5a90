#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/cancellation.h"
#include "tutti/base/status.h"
#include "tutti/base/team.h"
#include "tutti/device/layout.h"
#include "tutti/graph/graph.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

class Device;
class StepCleanup;
// Defined in runtime, whose own kernels use them; other kernels cannot look inside.
class Collectives;
class Rendezvous;
class StepRun;

// What a kernel is given when a plan is made: the node, and the concrete type of every input and
// output. Dimensions that are known only at run time are unknown here; the executor then calls
// Prepare again for every new combination of shapes.
class PrepareContext {
 public:
  PrepareContext(const Node& node, Device& device, std::span<const ValueType> inputs,
                 std::span<const ValueType> outputs, std::span<const Layout> input_layouts = {},
                 std::span<const Layout> output_layouts = {})
      : node_(node),
        device_(device),
        inputs_(inputs),
        outputs_(outputs),
        input_layouts_(input_layouts),
        output_layouts_(output_layouts) {}

  const Node& node() const { return node_; }
  Device& device() const { return device_; }
  int num_inputs() const { return int(inputs_.size()); }
  int num_outputs() const { return int(outputs_.size()); }
  const ValueType& input(int i) const { return inputs_[i]; }
  const ValueType& output(int i) const { return outputs_[i]; }
  // Row-major unless the kernel asked for another layout and the layout pass agreed.
  Layout input_layout(int i) const { return input_layouts_.empty() ? Layout() : input_layouts_[i]; }
  Layout output_layout(int i) const {
    return output_layouts_.empty() ? Layout() : output_layouts_[i];
  }

  // For a bucket: its inputs lie side by side, at BucketOffsets, in memory that peers can reach and
  // that the kernel may change.
  void SetInputsJoined(bool joined) { inputs_joined_ = joined; }
  bool inputs_joined() const { return inputs_joined_; }

  // Memory that Compute may use as it likes; its contents do not last from run to run. Set by
  // Prepare.
  void SetScratchBytes(size_t bytes) { scratch_bytes_ = bytes; }
  size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  const Node& node_;
  Device& device_;
  std::span<const ValueType> inputs_;
  std::span<const ValueType> outputs_;
  std::span<const Layout> input_layouts_;
  std::span<const Layout> output_layouts_;
  bool inputs_joined_ = false;
  size_t scratch_bytes_ = 0;
};

// What an asynchronous kernel calls, once, from any thread, when its node is done.
class Completion {
 public:
  virtual void NodeDone(uint32_t node, absl::Status status) = 0;

 protected:
  ~Completion() = default;
};

// Which iteration of a While is running, inside which iterations of the loops around it.
struct LoopFrame {
  const LoopFrame* outer = nullptr;  // null for an outermost loop
  int64_t iteration = 0;
};

// What is the same for all nodes of one step.
struct StepContext {
  int64_t random_step = 0;  // counts the session's runs; random ops that are given no step use it
  const LoopFrame* loops = nullptr;  // the loops around the node; part of rendezvous keys
  Cancellation* cancellation = nullptr;
  StepCleanup* cleanup = nullptr;  // what is undone should the step fail; null: nothing
  Device* device = nullptr;
  Rendezvous* rendezvous = nullptr;    // null for a step without Send and Recv
  Collectives* collectives = nullptr;  // null without a communicator
  StepRun* run = nullptr;              // for control-flow kernels
};

// What a kernel works on in one run: inputs, outputs, scratch. The executor makes it once per node
// and reuses it in every step.
class KernelContext {
 public:
  KernelContext() = default;
  // A run of `run_node` on these tensors. The tensors, and the pointers to them that the spans
  // show, outlive the context. `step` is set before the run, and so is `completion` for an
  // asynchronous kernel.
  KernelContext(const Node* run_node, std::span<Tensor* const> inputs,
                std::span<Tensor* const> outputs, std::span<std::byte> scratch = {})
      : node(run_node),
        inputs_(inputs.data()),
        outputs_(outputs.data()),
        input_count_(uint32_t(inputs.size())),
        output_count_(uint32_t(outputs.size())) {
    SetScratch(scratch);
  }

  const Tensor& input(int i) const { return *inputs_[i]; }
  // Already allocated, with the planned shape, unless the op's output shape is known only to the
  // kernel: then it calls AllocateOutput first.
  Tensor& output(int i) const { return *outputs_[i]; }
  int num_inputs() const { return int(input_count_); }
  int num_outputs() const { return int(output_count_); }

  // Memory for output i from the device's pool.
  absl::Status AllocateOutput(int i, const Shape& shape);
  // Output i is this tensor (a view of an input, a value taken from a queue).
  void SetOutput(int i, Tensor value) { *outputs_[i] = std::move(value); }
  // True if output i is read. Kernels that only return a reference (the value of a variable) skip
  // an output that is not read, so that the next update can work in place.
  bool output_consumed(int i) const { return i >= 64 || ((consumed_outputs >> i) & 1) != 0; }

  Device& device() const { return *step->device; }
  const Team& team() const;
  std::span<std::byte> scratch() const { return {scratch_data_, scratch_size_}; }
  void SetScratch(std::span<std::byte> scratch) {
    scratch_data_ = scratch.data();
    scratch_size_ = scratch.size();
  }
  Cancellation& cancellation() const { return *step->cancellation; }

  const Node* node = nullptr;
  StepContext* step = nullptr;
  uint64_t consumed_outputs = ~uint64_t{0};  // bit i: see output_consumed(i)
  Completion* completion = nullptr;          // for asynchronous kernels
  uint32_t index = 0;  // of the node in its plan; what to give to completion->NodeDone

 private:
  Tensor* const* inputs_ = nullptr;
  Tensor* const* outputs_ = nullptr;
  uint32_t input_count_ = 0;
  uint32_t output_count_ = 0;
  std::byte* scratch_data_ = nullptr;
  size_t scratch_size_ = 0;
};

// The pointers that a KernelContext wants, to tensors that the caller owns.
inline std::vector<Tensor*> PointersTo(std::span<Tensor> tensors) {
  std::vector<Tensor*> pointers;
  pointers.reserve(tensors.size());
  for (Tensor& tensor : tensors) pointers.push_back(&tensor);
  return pointers;
}

// The code of one node on one kind of device. Made and prepared when a plan is made, then run once
// a step. Not thread-safe: every concurrent run of a plan has kernels of its own, so a kernel may
// keep primitives, memory descriptors and counters as members. A kernel never blocks and never sees
// the network.
class Kernel {
 public:
  virtual ~Kernel() = default;

  // Creates what depends on shapes only. Called before the first Compute, and again when shapes
  // change.
  virtual absl::Status Prepare(PrepareContext& /*context*/) { return absl::OkStatus(); }

  // Reads the inputs, writes the outputs. An error's message tells what is wrong with which value;
  // the executor puts op, node and device in front.
  virtual absl::Status Compute(KernelContext& context) = 0;

  // Null for ordinary kernels.
  virtual class AsyncKernel* AsAsync() { return nullptr; }
};

// A kernel whose node may take longer than its work: it waits for another task, a queue, a peer.
class AsyncKernel : public Kernel {
 public:
  // Starts the node. Calls context.completion->NodeDone(context.index, status) exactly once, now or
  // later, on any thread; the context stays valid until then. When the step is cancelled the call
  // must come soon.
  virtual void Start(KernelContext& context) = 0;

  // What a node that was started and is not done waits for: `Mutex "m", which token 3 holds`; empty
  // if the kernel cannot tell. A step that is out of time asks, on the lane's thread, while the
  // node may complete on another.
  virtual std::string Awaited(const KernelContext& /*context*/) const { return ""; }

  absl::Status Compute(KernelContext&) final {
    return absl::InternalError("asynchronous kernel run in place");
  }
  AsyncKernel* AsAsync() final { return this; }
};

}  // namespace tutti
