// The kernels of Send and Recv: a value crosses from one device to another through the step's
// rendezvous.
#include <fmt/format.h>

#include "tutti/device/kernel.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous.h"

namespace tutti {
namespace {

// What Send and Recv have in common: their key.
template <typename Base>
class TransferKernel : public Base {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    key_ = context.node().attr<std::string>("key");
    return absl::OkStatus();
  }

 protected:
  // Calls `use` with the key of the cut and, behind it, the iterations of all loops around the
  // node, the outermost first: each iteration of nested loops sends a value of its own.
  template <typename Use>
  auto WithKey(const KernelContext& context, const Use& use) const {
    if (context.step->loops == nullptr) return use(key_);
    std::string path;
    for (const LoopFrame* loop = context.step->loops; loop != nullptr; loop = loop->outer) {
      path = fmt::format(";{}{}", loop->iteration, path);
    }
    return use(key_ + path);
  }

 private:
  std::string key_;
};

class SendKernel final : public TransferKernel<Kernel> {
 public:
  absl::Status Compute(KernelContext& context) override {
    return WithKey(context, [&](const std::string& key) {
      return context.step->rendezvous->Send(key, context.input(0));
    });
  }
};

// A value may come from another process, and later kernels trust its type.
absl::Status CheckType(const Node& recv, const Tensor& value) {
  const Output declared = recv.output();
  if (value.dtype() == declared.dtype() && value.shape().CompatibleWith(declared.shape())) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} expects a value of {} {}; {} {} was sent", recv.Describe(),
                         NameOf(declared.dtype()), declared.shape().ToString(),
                         NameOf(value.dtype()), value.shape().ToString());
}

class RecvKernel final : public TransferKernel<AsyncKernel> {
 public:
  void Start(KernelContext& context) override {
    WithKey(context, [&](const std::string& key) {
      context.step->rendezvous->Receive(key, [&context](absl::Status status, Tensor value) {
        if (status.ok()) status = CheckType(*context.node, value);
        if (status.ok()) context.SetOutput(0, std::move(value));
        context.completion->NodeDone(context.index, std::move(status));
      });
    });
  }
  std::string Awaited(const KernelContext& context) const override {
    return WithKey(context,
                   [](const std::string& key) { return fmt::format("the Send of \"{}\"", key); });
  }
};

}  // namespace

void RegisterTransferKernels(KernelRegistry& registry) {
  AddKernel<SendKernel>(registry, "Send", "cpu");
  AddKernel<RecvKernel>(registry, "Recv", "cpu");
}

}  // namespace tutti
