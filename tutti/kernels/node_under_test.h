#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/register.h"

namespace tutti {

// One node with its kernel, for tests of ops that hold state or wait: it is prepared once, as in a
// plan, and started and awaited separately. Inputs that are "&variables" need no value.
//
//   NodeUnderTest take(queue_device, dequeue_node);
//   take.Start({});
//   ...
//   ASSERT_TRUE(take.Wait().ok());
class NodeUnderTest final : public Completion {
 public:
  NodeUnderTest(Device& device, Output output, std::string_view kind = "cpu")
      : NodeUnderTest(device, *output.node, kind) {}

  NodeUnderTest(Device& device, const Node& node, std::string_view kind = "cpu")
      : device_(device), node_(node) {
    RegisterCpuKernels();
    const KernelDef* def = KernelRegistry::Global().Find(node.op(), kind, KernelDType(node));
    if (def == nullptr) {
      prepared_ = NotFound("no {} kernel for {}", kind, node.Describe());
      return;
    }
    kernel_ = def->make();
  }

  ~NodeUnderTest() { EXPECT_TRUE(finished()) << node_.Describe() << " is still waiting"; }

  // Starts the node on these inputs. REQUIRES: the last run is finished. `consumed`: see
  // KernelContext::consumed_outputs.
  void Start(std::vector<Tensor> inputs, uint64_t consumed = ~uint64_t{0}) {
    inputs_ = std::move(inputs);
    inputs_.resize(node_.num_inputs());
    outputs_.assign(node_.num_outputs(), Tensor());
    status_.reset();
    completions_ = 0;
    cancellation_.emplace();
    if (!Prepare()) return NodeDone(0, prepared_);
    input_pointers_ = PointersTo(inputs_);
    output_pointers_ = PointersTo(outputs_);
    step_.cancellation = &*cancellation_;
    step_.device = &device_;
    context_ = KernelContext(&node_, input_pointers_, output_pointers_, scratch_);
    context_.step = &step_;
    context_.consumed_outputs = consumed;
    context_.completion = this;
    if (AsyncKernel* async = kernel_->AsAsync()) {
      async->Start(context_);
    } else {
      NodeDone(0, kernel_->Compute(context_));
    }
  }

  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

  absl::Status Run(std::vector<Tensor> inputs, uint64_t consumed = ~uint64_t{0}) {
    Start(std::move(inputs), consumed);
    return Wait();
  }

  bool finished() const {
    std::lock_guard lock(mutex_);
    return status_.has_value() || context_.completion == nullptr;
  }
  int completions() const {
    std::lock_guard lock(mutex_);
    return completions_;
  }
  const Tensor& output(int i = 0) const { return outputs_[i]; }
  void DropValues() {
    inputs_.assign(inputs_.size(), Tensor());
    outputs_.assign(outputs_.size(), Tensor());
  }
  void Cancel(absl::Status reason = absl::CancelledError("the step was cancelled")) {
    cancellation_->Cancel(std::move(reason));
  }

  void NodeDone(uint32_t, absl::Status status) override {
    std::lock_guard lock(mutex_);
    ++completions_;
    status_ = std::move(status);
    done_.notify_all();
  }

 private:
  bool Prepare() {
    if (kernel_ == nullptr) return false;
    std::vector<ValueType> inputs;
    for (int i = 0; i < node_.num_inputs(); ++i) {
      const bool given = inputs_[i].valid();
      inputs.push_back(given ? ValueType{inputs_[i].dtype(), inputs_[i].shape()}
                             : node_.input(i).node->type(node_.input(i).index));
    }
    std::vector<ValueType> outputs;
    for (int i = 0; i < node_.num_outputs(); ++i) {
      outputs.push_back(node_.type(i));
      if (node_.type(i).shape.IsFullyKnown()) {
        outputs_[i] = Tensor(node_.type(i).dtype, node_.type(i).shape);
      }
    }
    PrepareContext prepare(node_, device_, inputs, outputs);
    prepared_ = kernel_->Prepare(prepare);
    scratch_.resize(prepare.scratch_bytes());
    return prepared_.ok();
  }

  Device& device_;
  const Node& node_;
  std::unique_ptr<Kernel> kernel_;
  absl::Status prepared_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
  std::vector<Tensor*> input_pointers_;
  std::vector<Tensor*> output_pointers_;
  std::vector<std::byte> scratch_;
  std::optional<Cancellation> cancellation_{std::in_place};  // of the last run
  StepContext step_;
  KernelContext context_;
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::optional<absl::Status> status_;
  int completions_ = 0;
};

}  // namespace tutti
