// Mutexes and barriers.
#include <atomic>
#include <thread>

#include "tutti/device/step_cleanup.h"
#include "tutti/kernels/waiting/sync_resources.h"
#include "tutti/kernels/waiting/sync_under_test.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(SyncTest, MutexIsFairAndKnowsItsHolder) {
  const Output mutex = Mutex(graph_, "m");
  const Output acquire = MutexAcquire(mutex);
  NodeUnderTest release(device_, *MutexRelease(mutex, Integer()));
  NodeUnderTest a(device_, acquire), b(device_, acquire), c(device_, acquire);
  EXPECT_EQ(MessageOf(release.Run({{}, Number(0)})),
            "token 0 does not hold mutex \"m\"; nobody does");
  ASSERT_TRUE(a.Run({}).ok());
  b.Start({});
  c.Start({});
  EXPECT_FALSE(b.finished());
  const absl::Status wrong = release.Run({{}, Number(99)});
  EXPECT_EQ(wrong.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(wrong), "token 99 does not hold mutex \"m\"; token 1 does");
  ASSERT_TRUE(release.Run({{}, a.output()}).ok());
  ASSERT_TRUE(b.Wait().ok());
  EXPECT_FALSE(c.finished());
  c.Cancel();
  EXPECT_EQ(c.Wait().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(release.Run({{}, b.output()}).ok());
  ASSERT_TRUE(c.Run({}).ok());
  EXPECT_EQ(release.Run({{}, b.output()}).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(release.Run({{}, c.output()}).ok());
}

TEST_F(SyncTest, MutexesOfAFailedStepAreGivenBackIfHeld) {
  const auto mutex = std::make_shared<MutexResource>(MutexResource::Config{"m"});
  StepCleanup cleanup;
  Cancellation cancellation;
  StepContext step{.cancellation = &cancellation, .cleanup = &cleanup, .device = &device_};
  Tensor token = Number(0);
  Tensor* const output = &token;
  struct Ignore final : Completion {
    void NodeDone(uint32_t, absl::Status) override {}
  } ignore;
  KernelContext context(nullptr, {}, {&output, 1});
  context.step = &step;
  context.completion = &ignore;
  mutex->Acquire(std::make_shared<MutexWaiter>(context, mutex));
  EXPECT_EQ(mutex->Describe(), "Mutex \"m\", which token 1 holds");
  // Released in time, and taken by somebody else: nothing to give back.
  ASSERT_TRUE(mutex->Release(token.scalar<int64_t>()).ok());
  StepCleanup others;
  step.cleanup = &others;
  mutex->Acquire(std::make_shared<MutexWaiter>(context, mutex));
  cleanup.Undo();
  EXPECT_EQ(mutex->Describe(), "Mutex \"m\", which token 2 holds");
  others.Undo();
  EXPECT_EQ(mutex->Describe(), "Mutex \"m\", which nobody holds");
}

TEST_F(SyncTest, OneNameHasOneDeclaration) {
  NodeUnderTest declared(device_, BarrierWait(Barrier(graph_, 1, "b")));
  ASSERT_TRUE(declared.Run({}).ok());
  const auto message = [&](const auto& declare) {
    Graph other;
    NodeUnderTest node(device_, declare(other));
    const absl::Status status = node.Run({});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(MessageOf(status));
  };
  EXPECT_THAT(
      message([](Graph& g) { return BarrierWait(Barrier(g, 2, "b")); }),
      AllOf(HasSubstr("Barrier \"b\" (mutex_test.cc:"),
            HasSubstr(" on /job:local/task:0/cpu:0: it exists there (container \"\") with 1 "
                      "participants, and this graph declares 2 participants; use the same "
                      "declaration, another name or another container")));
  EXPECT_THAT(
      message([](Graph& g) { return MutexAcquire(Mutex(g, "b")); }),
      AllOf(HasSubstr("Mutex \"b\""),
            HasSubstr("\"b\" is already a Barrier there (container \"\"); use another name or "
                      "another container")));
}

TEST_F(SyncTest, MutexExcludes) {
  const Output mutex = Mutex(graph_, "m");
  const Output acquire = MutexAcquire(mutex);
  Node* const release = MutexRelease(mutex, Integer());
  std::atomic<int> inside = 0, wrong = 0;
  int counter = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      NodeUnderTest enter(device_, acquire), leave(device_, *release);
      for (int i = 0; i < 200; ++i) {
        if (!enter.Run({}).ok() || ++inside != 1) ++wrong;
        ++counter;
        --inside;
        if (!leave.Run({{}, enter.output()}).ok()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(counter, 800);
}

TEST_F(SyncTest, BarrierRounds) {
  const Output wait = BarrierWait(Barrier(graph_, 3));
  NodeUnderTest a(device_, wait), b(device_, wait), c(device_, wait);
  for (int64_t round = 0; round < 3; ++round) {
    a.Start({});
    b.Start({});
    EXPECT_FALSE(a.finished());
    if (round == 1) {  // one gives up and comes again
      b.Cancel();
      EXPECT_EQ(b.Wait().code(), absl::StatusCode::kCancelled);
      c.Start({});
      EXPECT_FALSE(a.finished());
      b.Start({});
    } else {
      c.Start({});
    }
    for (NodeUnderTest* node : {&a, &b, &c}) {
      ASSERT_TRUE(node->Wait().ok());
      EXPECT_EQ(node->output().scalar<int64_t>(), round);
    }
  }
}

TEST_F(SyncTest, AStepCancelledBeforehandDoesNotWait) {
  const Output acquire = MutexAcquire(Mutex(graph_, "m"));
  NodeUnderTest holder(device_, acquire);
  ASSERT_TRUE(holder.Run({}).ok());
  const Output wait = BarrierWait(Barrier(graph_, 2));
  NodeUnderTest waiting(device_, wait);
  waiting.Start({});
  // The nodes of many threads are cancelled while they begin to wait.
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      NodeUnderTest blocked(device_, acquire);
      for (int i = 0; i < 200; ++i) {
        std::thread canceller;
        blocked.Start({});
        canceller = std::thread([&] { blocked.Cancel(); });
        if (blocked.Wait().code() != absl::StatusCode::kCancelled) ++wrong;
        canceller.join();
        if (blocked.completions() != 1) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  waiting.Cancel();
  EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tutti
