// Kernels and shape functions that throw or fail, on the caller's lane and on another one: the step
// ends with an Error that names the node, and the session goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

class ThrowingKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { throw std::runtime_error("a stone"); }
};

class ThrowingAsyncKernel final : public AsyncKernel {
 public:
  void Start(KernelContext&) override { throw std::runtime_error("a stone"); }
};

class ThrowingPrepareKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext&) override { throw std::runtime_error("a stone"); }
  absl::Status Compute(KernelContext&) override { return absl::OkStatus(); }
};

// Writes the length it was prepared for. It cannot be prepared for 3, and finds that out late.
class LengthKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    length_ = context.input(0).shape.dim(0);
    return length_ == 3 ? InvalidArgument("3 is too many") : absl::OkStatus();
  }
  absl::Status Compute(KernelContext& context) override {
    Tensor& out = context.output(0);
    std::fill_n(out.data<int64_t>(), out.elements(), length_);
    return absl::OkStatus();
  }

 private:
  int64_t length_ = 0;
};

absl::Status SameShape(InferContext& context) {
  context.SetOutput(0, kInt64, context.shape(0));
  return absl::OkStatus();
}

// Wants more dimensions than a shape has, once it knows those of its input.
absl::Status TooManyDims(InferContext& context) {
  if (!context.shape(0).IsFullyKnown()) return SameShape(context);
  context.SetOutput(0, kInt64, Shape{1, 1, 1, 1, 1, 1, 1, 1, 1});
  return absl::OkStatus();
}

template <typename K>
void AddOp(const char* name, bool async = false, absl::Status (*infer)(InferContext&) = SameShape) {
  OpRegistry::Global().Add(
      {.name = name, .inputs = {"x"}, .infer = infer, .stateful = true, .async = async});
  AddKernel<K>(KernelRegistry::Global(), name, "cpu");
}

class FaultyKernelsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterCpuKernels();
    AddOp<ThrowingKernel>("Throwing");
    AddOp<ThrowingAsyncKernel>("ThrowingAsync", true);
    AddOp<ThrowingPrepareKernel>("ThrowingPrepare");
    AddOp<LengthKernel>("Length");
    AddOp<LengthKernel>("ThrowingShape", false, TooManyDims);
  }

  Output Apply(const char* op, Output x) { return OpBuilder(op, "bad").In(x).Build(); }

  // The error of a run that fetches `y`, with a second device that works too. The session must be
  // able to run and to close afterwards.
  std::string ErrorOf(Output y, const Feed& feed) {
    Session session(graph_, {.devices = 2, .cores_per_device = 1});
    std::string message = "no error";
    try {
      session.Run({feed}, {y, good_});
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_EQ(session.Run(good_).scalar<int64_t>(), 5);
    session.Close();
    return message;
  }

  Graph graph_;
  Output x_ = Placeholder(graph_, kInt64, Shape{kUnknownDim}, "x");
  Output good_ = Identity(Constant(graph_, Tensor::Scalar<int64_t>(5)));
  Tensor two_ = Tensor::Vector<int64_t>({7, 8});
};

TEST_F(FaultyKernelsTest, ThrowFromAnyLaneIsAnErrorThatNamesTheNode) {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    for (const char* op : {"Throwing", "ThrowingAsync", "ThrowingPrepare"}) {
      SCOPED_TRACE(std::string(op) + " on " + device);
      const DeviceScope scope(graph_, device);
      const Output y = OpBuilder(op, graph_.UniqueName("bad")).In(x_).Build();
      const std::string message = ErrorOf(y, {x_, two_});
      EXPECT_THAT(message, HasSubstr(std::string(op) + " \"bad"));
      EXPECT_THAT(message, HasSubstr("a stone"));
    }
  }
}

TEST_F(FaultyKernelsTest, ThrowInsideALoopThatWaitsIsAnError) {
  // The body waits for a queue first, so that the throw comes from the lane and not from Start.
  const Output queue = FIFOQueue(graph_, {{kInt64, Shape{kUnknownDim}}});
  const Node* put = Enqueue(queue, {x_});
  const Output taken = Dequeue(queue)[0];
  const Output y = If(
      Constant(graph_, Tensor::Scalar(true)),
      [&] { return std::vector<Output>{Apply("ThrowingPrepare", taken)}; },
      [&] { return std::vector<Output>{taken}; })[0];
  Session session(graph_);
  session.RunTargets({{x_, two_}}, {put});
  try {
    session.Run(y);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a stone"));
  }
  session.Close();
}

TEST_F(FaultyKernelsTest, ShapeFunctionThatThrowsInTheRunIsAnError) {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    SCOPED_TRACE(device);
    const DeviceScope scope(graph_, device);
    const Output y =
        OpBuilder("ThrowingShape", graph_.UniqueName("wide")).In(Unique(x_).values).Build();
    const std::string message = ErrorOf(y, {x_, two_});
    EXPECT_THAT(message, HasSubstr("ThrowingShape \"wide"));
    EXPECT_THAT(message, HasSubstr("at most 8"));
  }
}

TEST_F(FaultyKernelsTest, DequeueManyOfTheHighestRankIsAnError) {
  const Output value = Placeholder(graph_, kFloat32, Shape::UnknownRank());
  const Output queue = FIFOQueue(graph_, {{kFloat32, Shape::UnknownRank()}});
  const Node* put = Enqueue(queue, {value});
  const Output taken = DequeueMany(queue, Constant(graph_, Tensor::Scalar<int64_t>(1)), "many")[0];
  Session session(graph_);
  session.RunTargets({{value, Tensor::Zeros(kFloat32, {1, 1, 1, 1, 1, 1, 1, 1})}}, {put});
  try {
    session.Run(taken);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("DequeueMany \"many\""));
    EXPECT_THAT(error.what(), HasSubstr("at most 8"));
  }
}

TEST_F(FaultyKernelsTest, AKernelThatCouldNotBePreparedIsPreparedAgain) {
  const Output lengths = Apply("Length", Unique(x_).values);
  const Tensor two_values = Tensor::Vector<int64_t>({7, 8, 8});
  const Tensor three_values = Tensor::Vector<int64_t>({7, 8, 9});
  Session session(graph_);
  EXPECT_EQ(session.Run({{x_, two_values}}, lengths).ToString(), "int64 [2] {2, 2}");
  EXPECT_THROW(session.Run({{x_, three_values}}, lengths), Error);
  EXPECT_EQ(session.Run({{x_, two_values}}, lengths).ToString(), "int64 [2] {2, 2}");
}

}  // namespace
}  // namespace tutti
