// The executor on small plans, straight from text, with kernels whose end the test decides.
#include "tutti/runtime/executor/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tutti/compile/program_text.h"
#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/executor/unfinished.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

// What the kernels below have in common with the test that runs them.
struct Stage {
  std::vector<std::string> ran;                   // names, in order
  std::map<std::string, KernelContext*> waiting;  // started and not finished
};
Stage* stage = nullptr;

class NoteKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    stage->ran.push_back(c.node->name());
    return absl::OkStatus();
  }
};

class FailKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { return InvalidArgument("a stone"); }
};

// Done when the test says so, or its step is cancelled.
class WaitKernel final : public AsyncKernel {
 public:
  void Start(KernelContext& c) override {
    stage->waiting[c.node->name()] = &c;
    c.cancellation().Register([&c] { c.completion->NodeDone(c.index, c.cancellation().status()); });
  }
  std::string Awaited(const KernelContext&) const override { return "the test"; }
};

// Lets the named node end.
class LetGoKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    stage->ran.push_back(c.node->name());
    const std::string& name = c.node->name();
    KernelContext& other = *stage->waiting.at(name.substr(name.find('_') + 1));
    other.completion->NodeDone(other.index, absl::OkStatus());
    return absl::OkStatus();
  }
};

template <typename K>
void AddOp(const char* name, bool async = false) {
  OpRegistry::Global().Add({.name = name,
                            .infer = [](InferContext&) { return absl::OkStatus(); },
                            .stateful = true,
                            .async = async});
  AddKernel<K>(KernelRegistry::Global(), name, "cpu");
}

class ExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterCpuKernels();
    AddOp<NoteKernel>("TestNote");
    AddOp<FailKernel>("TestFail");
    AddOp<WaitKernel>("TestWait", true);
    AddOp<LetGoKernel>("TestLetGo");
  }
  ExecutorTest() { stage = &stage_; }
  ~ExecutorTest() override { stage = nullptr; }

  // Runs the program, all of whose nodes are targets.
  absl::Status Run(const std::string& text) {
    auto program = ParseProgram(text);
    EXPECT_TRUE(program.ok()) << program.status();
    for (const auto& node : program->graph->nodes()) program->targets.push_back(node.get());
    auto plan = MakeStepPlan(*std::move(program), device_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    auto instance = PlanInstance::Make(*plan_);
    EXPECT_TRUE(instance.ok()) << instance.status();
    StepContext step{.cancellation = &cancellation_, .device = &device_};
    const absl::Status status =
        RunOnThisThread(**instance, step, {.unfinished = &unfinished_, .records = &records_});
    for (const uint64_t word : (*instance)->outstanding()) EXPECT_EQ(word, 0u);
    return status;
  }

  Stage stage_;
  Device device_{"/job:local/task:0/cpu:0", 1};
  Cancellation cancellation_;
  UnfinishedNodes unfinished_;
  std::vector<NodeRecord> records_;
  std::unique_ptr<StepPlan> plan_;
};

TEST_F(ExecutorTest, WithoutAsynchronousNodesTheOrderIsThePlans) {
  ASSERT_TRUE(Run("a = TestNote()\n"
                  "b = TestNote() ^a\n"
                  "c = TestNote()\n"
                  "d = TestNote() ^b ^c\n")
                  .ok());
  EXPECT_THAT(stage_.ran, ElementsAre("a", "b", "c", "d"));
  ASSERT_EQ(records_.size(), 4u);
  for (const NodeRecord& record : records_) EXPECT_GE(record.end_nanos, record.start_nanos);
}

TEST_F(ExecutorTest, WhatIsReadyRunsWhileANodeWaits) {
  ASSERT_TRUE(Run("w = TestWait()\n"
                  "after = TestNote() ^w\n"
                  "beside = TestNote()\n"
                  "go_w = TestLetGo() ^beside\n"
                  "last = TestNote()\n")
                  .ok());
  EXPECT_THAT(stage_.ran, ElementsAre("beside", "go_w", "last", "after"));
}

TEST_F(ExecutorTest, TheFirstFailureEndsTheStep) {
  const absl::Status status =
      Run("w = TestWait()\n"
          "bad = TestFail()\n"
          "never = TestNote()\n");
  EXPECT_EQ(MessageOf(status), "TestFail \"bad\" on /job:local/task:0/cpu:0: a stone");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(stage_.ran.empty());
  EXPECT_EQ(cancellation_.status(), status) << "waiting nodes are told why";
  EXPECT_EQ(unfinished_.ToString(), "") << "the failure tells all";
}

TEST_F(ExecutorTest, AnEndedStepTellsWhatWasLeft) {
  cancellation_.Cancel(Cancelled("enough"));
  EXPECT_EQ(MessageOf(Run("a = TestNote()\nb = TestNote() ^a\n")), "enough");
  EXPECT_EQ(unfinished_.ToString(),
            "; not done: TestNote \"a\" on /job:local/task:0/cpu:0 (not started)");
}

TEST(UnfinishedNodes, ListsTheFirstFew) {
  UnfinishedNodes nodes;
  EXPECT_EQ(nodes.ToString(), "");
  nodes.Add("A \"a\"", "");
  EXPECT_EQ(nodes.ToString(), "; not done: A \"a\"");
  for (int i = 0; i < 5; ++i) nodes.Add("B \"b\"", "waits for C");
  EXPECT_EQ(
      nodes.ToString(),
      "; not done: A \"a\", B \"b\" (waits for C), B \"b\" (waits for C), B \"b\" (waits for C) "
      "and 2 more");
}

}  // namespace
}  // namespace tutti
