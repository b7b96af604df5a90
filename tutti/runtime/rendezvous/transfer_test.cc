// The kernels of Send and Recv by themselves: under which keys values cross.
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/device/kernel.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous/local_rendezvous.h"

namespace tutti {
namespace {

class Ended final : public Completion {
 public:
  void NodeDone(uint32_t, absl::Status given) override { status = std::move(given); }
  absl::Status status = Unavailable("the Recv has not ended");
};

// All iterations of a loop in a loop send before the first value is received: values under the same
// key would meet.
TEST(Transfer, EachIterationOfNestedLoopsHasAKeyOfItsOwn) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  Graph graph;
  const Node& send =
      *OpBuilder("Send", "").In(Constant(graph, 1.0f)).Attr("key", "a;b;v").BuildNode();
  const Node& recv = *OpBuilder("Recv", "")
                          .On(graph)
                          .Attr("key", "a;b;v")
                          .Attr("dtype", kFloat32)
                          .Attr("shape", Shape{})
                          .BuildNode();
  Device device("/job:local/task:0/cpu:0", 1, 1);
  LocalRendezvous rendezvous;
  const std::vector<ValueType> value = {{kFloat32, Shape{}}};
  const auto kernel_of = [&](const Node& node) {
    auto kernel = KernelRegistry::Global().Find(node.op(), "cpu", kFloat32)->make();
    const std::span<const ValueType> types = value;
    PrepareContext context(node, device, types.first(size_t(node.num_inputs())),
                           types.first(size_t(node.num_outputs())));
    EXPECT_TRUE(kernel->Prepare(context).ok());
    return kernel;
  };
  const auto sends = kernel_of(send), receives = kernel_of(recv);
  // Calls `run` with the step as a node in iteration `inner` of a loop sees it, which runs in
  // iteration `outer` of another one.
  const auto in_loops = [&](int64_t outer, int64_t inner, const auto& run) {
    const LoopFrame around{nullptr, outer};
    const LoopFrame within{&around, inner};
    StepContext step{.loops = &within, .device = &device, .rendezvous = &rendezvous};
    run(step);
  };
  constexpr int64_t kIterations = 11;  // of both loops: 1;11 is not 11;1, nor 1;1 followed by 1
  const auto for_all = [&](const auto& run) {
    for (int64_t outer = 0; outer <= kIterations; ++outer) {
      for (int64_t inner = 0; inner <= kIterations; ++inner) {
        in_loops(outer, inner, [&](StepContext& step) { run(step, float(outer * 100 + inner)); });
      }
    }
  };
  for_all([&](StepContext& step, float number) {
    std::vector<Tensor> inputs = {Tensor::Scalar(number)};
    const auto pointers = PointersTo(inputs);
    KernelContext context(&send, pointers, {});
    context.step = &step;
    EXPECT_EQ(sends->Compute(context), absl::OkStatus()) << number;
  });
  for_all([&](StepContext& step, float number) {
    std::vector<Tensor> outputs(1);
    const auto pointers = PointersTo(outputs);
    Ended ended;
    KernelContext context(&recv, {}, pointers);
    context.step = &step;
    context.completion = &ended;
    receives->AsAsync()->Start(context);
    ASSERT_EQ(ended.status, absl::OkStatus()) << number;
    EXPECT_EQ(outputs[0].scalar<float>(), number);
  });
}

}  // namespace
}  // namespace tutti
