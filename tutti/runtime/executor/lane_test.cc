// Several runs on one lane: they take turns, and those that wait cost it nothing. The lane is this
// test's own thread, so the order is fixed; the last tests have one with a thread of its own.
#include "tutti/runtime/executor/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <future>
#include <map>

#include "tutti/base/cores.h"
#include "tutti/compile/program_text.h"
#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/executor/device_lane.h"
#include "tutti/runtime/executor/executor.h"
#include "tutti/runtime/register.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

std::vector<std::string>* ran = nullptr;
std::map<std::string, KernelContext*>* waiting = nullptr;

class NoteKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ran->push_back(c.node->name());
    return absl::OkStatus();
  }
};

class WaitKernel final : public AsyncKernel {
 public:
  void Start(KernelContext& c) override { (*waiting)[c.node->name()] = &c; }
};

// "go_NAME" lets NAME end, in whichever run it is.
class LetGoKernel final : public Kernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    ran->push_back(c.node->name());
    KernelContext& other = *waiting->at(c.node->name().substr(3));
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

// A run of a program that begins as a job.
class JobOf final : public LaneJob {
 public:
  JobOf(Program program, Lane& lane, Device& device, int& left) : lane_(lane), left_(left) {
    plan_ = *MakeStepPlan(std::move(program), device);
    instance_ = *PlanInstance::Make(*plan_);
    step_ = {.cancellation = &cancellation_, .device = &device};
    ++left_;
  }
  void RunOnLane() override {
    run_.emplace(*instance_, lane_, step_);
    run_->Start([this] { --left_; });
  }
  const absl::Status& status() const { return run_->status(); }

 private:
  Lane& lane_;
  int& left_;
  Cancellation cancellation_;
  std::unique_ptr<StepPlan> plan_;
  std::unique_ptr<PlanInstance> instance_;
  StepContext step_;
  std::optional<StepRun> run_;
};

class LaneTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterCpuKernels();
    RegisterRuntimeKernels();
    AddOp<NoteKernel>("LaneNote");
    AddOp<WaitKernel>("LaneWait", true);
    AddOp<LetGoKernel>("LaneLetGo");
  }
  LaneTest() {
    ran = &ran_;
    waiting = &waiting_;
  }

  static Program Parsed(const std::string& text) {
    auto program = ParseProgram(text);
    EXPECT_TRUE(program.ok()) << program.status();
    for (const auto& node : program->graph->nodes()) program->targets.push_back(node.get());
    return *std::move(program);
  }
  // `count` notes named PREFIX0, PREFIX1 and so on, one after the other.
  static Program Chain(const std::string& prefix, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += prefix + std::to_string(i) + " = LaneNote()";
      if (i > 0) text += " ^" + prefix + std::to_string(i - 1);
      text += "\n";
    }
    return Parsed(text);
  }
  void Post(Program program) {
    jobs_.push_back(std::make_unique<JobOf>(std::move(program), lane_, device_, left_));
    lane_.Push(jobs_.back().get());
  }
  // Until all jobs have ended.
  void Drive() {
    struct LastJob final : LaneJob {
      explicit LastJob(LaneTest& given) : test(given) {}
      // Comes again and again, behind the others.
      void RunOnLane() override {
        done = test.left_ == 0;
        if (!done) test.lane_.Push(this);
      }
      LaneTest& test;
      bool done = false;
    } last(*this);
    lane_.Push(&last);
    lane_.Drive(&last.done);
    for (const auto& job : jobs_) EXPECT_TRUE(job->status().ok()) << job->status();
  }

  std::vector<std::string> ran_;
  std::map<std::string, KernelContext*> waiting_;
  Lane lane_{{.turn = 4}};
  Device device_{"/job:local/task:0/cpu:0", 1};
  int left_ = 0;  // jobs that have not ended
  std::vector<std::unique_ptr<JobOf>> jobs_;
};

TEST_F(LaneTest, RunsTakeTurns) {
  Post(Chain("a", 10));
  Post(Chain("b", 2));
  Drive();
  EXPECT_THAT(ran_,
              ElementsAre("a0", "a1", "a2", "a3", "b0", "b1", "a4", "a5", "a6", "a7", "a8", "a9"));
}

TEST_F(LaneTest, ARunThatWaitsDoesNotHoldUpOthers) {
  Post(Parsed("w = LaneWait()\nafter = LaneNote() ^w\n"));
  Post(Parsed("first = LaneNote()\ngo_w = LaneLetGo() ^first\nlast = LaneNote() ^go_w\n"));
  Drive();
  EXPECT_THAT(ran_, ElementsAre("first", "go_w", "last", "after"));
}

// The body draws on the turn of the run around it.
TEST_F(LaneTest, ALoopGivesWay) {
  Program looping;
  const Output end = While(
      {Constant(*looping.graph, int64_t{0})},
      [](std::span<const Output> v) { return Less(v[0], int64_t{50}); },
      [](std::span<const Output> v) {
        ValueOrThrow(AddNode(*SubgraphBeingBuilt(), {.op = "LaneNote", .name = "turn"}));
        return std::vector<Output>{Add(v[0], int64_t{1})};
      })[0];
  looping.targets.push_back(end.node);
  Post(std::move(looping));
  Post(Chain("b", 1));
  Drive();
  ASSERT_EQ(ran_.size(), 51u);
  const auto b = std::find(ran_.begin(), ran_.end(), "b0") - ran_.begin();
  EXPECT_LT(b, 5) << "a turn is 4 nodes, whatever they belong to";
}

TEST(DeviceLane, RunsOnItsCoresAndStopsWhenItGoes) {
  const std::vector<int> cores = NumbersOfUsableCores();
  ASSERT_FALSE(cores.empty());
  struct Look final : LaneJob {
    void RunOnLane() override {
      cpu_set_t set;
      CPU_ZERO(&set);
      sched_getaffinity(0, sizeof(set), &set);
      std::vector<int> own;
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(size_t(core), &set)) own.push_back(core);
      }
      seen.set_value(own);
    }
    std::promise<std::vector<int>> seen;
  } look;
  DeviceLane lane({.device = "/cpu:0", .cores = {cores.back()}});
  ASSERT_TRUE(lane.Post(&look).ok());
  EXPECT_THAT(look.seen.get_future().get(), ElementsAre(cores.back()));
}

TEST(DeviceLane, MayBeDestroyedByWhatRunsOnIt) {
  struct Destroy final : LaneJob {
    void RunOnLane() override {
      lane.reset();
      destroyed.set_value();
    }
    std::unique_ptr<DeviceLane> lane = std::make_unique<DeviceLane>(DeviceLaneOptions{});
    std::promise<void> destroyed;
  } destroy;
  ASSERT_TRUE(destroy.lane->Post(&destroy).ok());
  destroy.destroyed.get_future().get();
}

}  // namespace
}  // namespace tutti
