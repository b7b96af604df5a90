// Every allocation of a call may fail: its answer comes all the same, once.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "tutti/base/awaited.h"
#include "tutti/compile/program_text.h"
#include "tutti/graph/graph.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/testing/allocation_count.h"

namespace tutti {
namespace {

constexpr const char* kTask = "/job:local/task:0";

// Calls `run(done)` with the first allocation of this thread failing, then with the second one, and
// so on, until none does, or `most` times. Each call is answered once.
int64_t ExpectAnswers(int64_t most, const std::function<void(Worker::RunDone)>& run) {
  int64_t failures = 0;
  for (bool failed = true; failed && failures < most; ++failures) {
    SCOPED_TRACE(failures);
    Awaited<RunResponse> answer;
    std::atomic<int> answers = 0;
    // Made here, and larger than what std::function keeps in itself.
    Worker::RunDone done = [&answer, &answers,
                            filler = std::array<int64_t, 4>()](RunResponse&& response) {
      (void)filler;
      ++answers;
      answer.Set(std::move(response));
    };
    testing::FailAllocationAfter(failures);
    run(std::move(done));
    failed = !testing::FailNoAllocation();
    const RunResponse response = answer.Wait();
    EXPECT_EQ(answers, 1);
    if (!failed) {
      EXPECT_TRUE(response.status.ok()) << response.status;
    } else if (!response.status.ok()) {
      EXPECT_EQ(response.status.code(), absl::StatusCode::kResourceExhausted) << response.status;
    }
  }
  return failures;
}

class ScarceMemoryTest : public ::testing::Test {
 protected:
  ScarceMemoryTest() { RegisterCpuKernels(); }
};

TEST_F(ScarceMemoryTest, AWorkerAnswers) {
  const auto worker = std::make_shared<LocalWorker>(LocalWorkerOptions{});
  std::vector<Partition> parts;
  parts.push_back({.device = "/job:local/task:0/cpu:0",
                   .program = *ParseProgram("c = Constant() {value=float32 [] {4}}\n"
                                            "n = Neg(c)\nfetch n\n")});
  Awaited<absl::StatusOr<uint64_t>> registered;
  worker->Register({.session = 1, .parts = std::move(parts), .options = {.optimize = false}},
                   [&](auto given) { registered.Set(std::move(given)); });
  const uint64_t handle = ValueOrThrow(registered.Wait());
  int64_t step = 0;
  const auto run = [&](bool caller_waits) {
    return [&, caller_waits](Worker::RunDone done) {
      worker->Run({.id = {1, ++step}, .handle = handle, .caller_waits = caller_waits},
                  std::move(done));
    };
  };
  EXPECT_GT(ExpectAnswers(1000, run(true)), 1) << "the list of running steps has no room yet";
  EXPECT_GT(ExpectAnswers(1000, run(false)), 2) << "the step on its lane is an object";
}

// Up to the list of running steps; a failure later, in the compiler, is told as any other.
TEST_F(ScarceMemoryTest, AMasterAnswers) {
  constexpr int64_t kFirst = 4;
  Graph graph;
  const Output y = Neg(Constant(graph, Tensor::Scalar(4.0f)));
  const auto worker = std::make_shared<LocalWorker>(LocalWorkerOptions{});
  int64_t failures = 0;
  const auto run = [&](Worker::RunDone done) {
    testing::FailNoAllocation();
    auto master = std::make_unique<LocalMaster>(WorkersByTask{{kTask, worker}}, kTask,
                                                CompileOptions{.optimize = false});
    master->Create(graph, [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
    MasterRunRequest request;
    request.step = 1;
    request.fetches.push_back({y.node->id(), y.index});
    request.caller_waits = true;
    testing::FailAllocationAfter(failures++);
    master->Run(std::move(request), std::move(done));
  };
  EXPECT_EQ(ExpectAnswers(kFirst, run), kFirst);
}

}  // namespace
}  // namespace tutti
