// The kernels of Send and Recv: a value crosses from one device to another through the step's
// rendezvous.
#include <fmt/format.h>

#include "tutti/device/kernel.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous.h"

namespace tutti {
namespace {

// The key of the cut, and the iterations of all loops around the node, the outermost first: each
// iteration of nested loops sends a value of its own.
std::string KeyOf(const KernelContext& context) {
  const auto& key = context.node->attr<std::string>("key");
  std::string path;
  for (const LoopFrame* loop = context.step->loops; loop != nullptr; loop = loop->outer) {
    path = fmt::format(";{}{}", loop->iteration, path);
  }
  return key + path;
}

class SendKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext& context) override {
    return context.step->rendezvous->Send(KeyOf(context), context.input(0));
  }
};

class RecvKernel final : public AsyncKernel {
 public:
  void Start(KernelContext& context) override {
    context.step->rendezvous->Receive(
        KeyOf(context), [&context](absl::Status status, Tensor value) {
          if (status.ok()) context.SetOutput(0, std::move(value));
          context.completion->NodeDone(context.index, std::move(status));
        });
  }
  std::string Awaited(const KernelContext& context) const override {
    return fmt::format("the Send of \"{}\"", KeyOf(context));
  }
};

}  // namespace

void RegisterTransferKernels(KernelRegistry& registry) {
  AddKernel<SendKernel>(registry, "Send", "cpu");
  AddKernel<RecvKernel>(registry, "Recv", "cpu");
}

}  // namespace tutti
