// The kernels of Send and Recv: a value crosses from one device to another through the step's
// rendezvous.
#include <fmt/format.h>

#include "tutti/device/device.h"
#include "tutti/device/kernel.h"
#include "tutti/graph/ops/variable_key.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous/rendezvous.h"

namespace tutti {
namespace {

// What Send and Recv have in common: their key.
template <typename Base>
class TransferKernel : public Base {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const std::string& key = context.node().attr<std::string>("key");
    if (key != key_.text()) key_ = TransferKey(key);
    return absl::OkStatus();
  }

 protected:
  // Calls `use` with the key of the cut and, behind it, the iterations of all loops around the
  // node, the outermost first: each iteration of nested loops sends a value of its own.
  template <typename Use>
  auto WithKey(const KernelContext& context, const Use& use) const {
    if (context.step->loops == nullptr) [[likely]]
      return use(key_);
    std::string path;
    for (const LoopFrame* loop = context.step->loops; loop != nullptr; loop = loop->outer) {
      path = fmt::format(";{}{}", loop->iteration, path);
    }
    return use(TransferKey(key_.text() + path));
  }

 private:
  TransferKey key_;
};

class SendKernel final : public TransferKernel<Kernel> {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Output value = context.node().input(0);
    if (value.node->op() == "Variable") {
      TUTTI_ASSIGN_OR_RETURN(const VariableKey key, VariableKeyOf(value));
      TUTTI_ASSIGN_OR_RETURN(const auto state,
                             context.device().variables().FindOrCreate(
                                 key.container, key.name, {value.dtype(), value.shape()}));
      state->MarkSent();
    }
    return TransferKernel::Prepare(context);
  }
  absl::Status Compute(KernelContext& context) override {
    return WithKey(context, [&](const TransferKey& key) {
      return context.step->rendezvous->Send(key, context.input(0));
    });
  }
};

class RecvKernel final : public TransferKernel<AsyncKernel> {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Output declared = context.node().output();
    declared_ = {declared.dtype(), declared.shape()};
    return TransferKernel::Prepare(context);
  }
  void Start(KernelContext& context) override {
    WithKey(context, [&](const TransferKey& key) {
      context.step->rendezvous->Receive(key, [this, &context](absl::Status status, Tensor value) {
        if (status.ok()) status = CheckType(*context.node, value);
        if (status.ok()) context.SetOutput(0, std::move(value));
        context.completion->NodeDone(context.index, std::move(status));
      });
    });
  }
  std::string Awaited(const KernelContext& context) const override {
    return WithKey(context, [](const TransferKey& key) {
      return fmt::format("the Send of \"{}\"", key.text());
    });
  }

 private:
  // A value may come from another process, and later kernels trust its type.
  absl::Status CheckType(const Node& recv, const Tensor& value) const {
    if (value.dtype() == declared_.dtype && value.shape().CompatibleWith(declared_.shape)) {
      return absl::OkStatus();
    }
    return InvalidArgument("{} expects a value of {} {}; {} {} was sent", recv.Describe(),
                           NameOf(declared_.dtype), declared_.shape.ToString(),
                           NameOf(value.dtype()), value.shape().ToString());
  }

  ValueType declared_;
};

}  // namespace

void RegisterTransferKernels(KernelRegistry& registry) {
  AddKernel<SendKernel>(registry, "Send", "cpu");
  AddKernel<RecvKernel>(registry, "Recv", "cpu");
}

}  // namespace tutti
