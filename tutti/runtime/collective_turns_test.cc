// Steps with collectives run one after the other. One that waits for its turn can be ended while
// the step before it hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "tutti/base/awaited.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/collective/communicator.h"
#include "tutti/compile/program_text.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/runtime/turns.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr auto kCeiling = std::chrono::seconds(30);

TEST(Turns, AStepThatWaitsGivesUpItsPlace) {
  Turns turns;
  Cancellation first, second, third;
  std::string order;
  const auto enter = [&](const Cancellation& step, const std::string& name) {
    turns.Enter(step, [&, name](bool has_turn) {
      order += name + (has_turn ? " has it; " : " gave up; ");
    });
  };
  enter(first, "first");
  enter(second, "second");
  enter(third, "third");
  EXPECT_EQ(order, "first has it; ");
  second.Cancel(Cancelled("enough"));
  const Turns::Then withdrawn = turns.Withdraw(second);
  ASSERT_TRUE(withdrawn);
  withdrawn(false);
  EXPECT_FALSE(turns.Withdraw(second)) << "it waits no more";
  enter(second, "second");
  EXPECT_EQ(order, "first has it; second gave up; second gave up; ") << "it does not wait again";
  turns.Leave();
  EXPECT_EQ(order, "first has it; second gave up; second gave up; third has it; ");
  EXPECT_FALSE(turns.TryEnter());
  turns.Leave();
  EXPECT_TRUE(turns.TryEnter());
}

// The second of two ranks takes part in nothing.
class CollectiveTurnsTest : public ::testing::Test {
 protected:
  CollectiveTurnsTest() {
    RegisterCpuKernels();
    auto communicators = ValueOrThrow(collective::Communicator::CreateInProcess(2));
    communicator_ = std::move(communicators[0]);
    absent_ = std::move(communicators[1]);
  }

  std::shared_ptr<collective::Communicator> communicator_, absent_;
};

TEST_F(CollectiveTurnsTest, AWorkersStepThatWaitsIsAborted) {
  LocalWorker worker({.communicator = communicator_});
  std::vector<Partition> parts;
  parts.push_back({.device = "/job:local/task:0/cpu:0",
                   .program = *ParseProgram("c = Constant() {value=float32 [2] {1, 2}}\n"
                                            "s = AllReduce(c) {key=\"sum\"}\nfetch s\n")});
  Awaited<absl::StatusOr<uint64_t>> registered;
  worker.Register({.session = 1, .parts = std::move(parts), .options = {.optimize = false}},
                  [&](auto given) { registered.Set(std::move(given)); });
  const uint64_t handle = ValueOrThrow(registered.Wait());
  std::promise<RunResponse> first, second, third;
  worker.Run({.id = {1, 1}, .handle = handle},
             [&](RunResponse&& response) { first.set_value(std::move(response)); });
  worker.Run({.id = {1, 2}, .handle = handle},
             [&](RunResponse&& response) { second.set_value(std::move(response)); });
  std::thread caller([&] {
    worker.Run({.id = {1, 3}, .handle = handle, .caller_waits = true},
               [&](RunResponse&& response) { third.set_value(std::move(response)); });
  });
  for (auto* const answer : {&second, &third}) {
    auto future = answer->get_future();
    worker.Abort({1, answer == &second ? 2 : 3}, Cancelled("enough"));
    const bool answered = future.wait_for(kCeiling) == std::future_status::ready;
    EXPECT_TRUE(answered);
    if (!answered) break;
    const RunResponse response = future.get();
    EXPECT_EQ(response.status, Cancelled("enough"));
    EXPECT_THAT(response.unfinished, HasSubstr("an earlier step with collectives"));
  }
  communicator_->Abort(Aborted("the test is over"));
  EXPECT_FALSE(first.get_future().get().status.ok());
  caller.join();
}

TEST_F(CollectiveTurnsTest, TheTimeoutOfAStepThatWaitsHolds) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {2}, "x");
  const Output begun = FIFOQueue(graph, {{kFloat32, Shape{2}}});
  const Node* const tell = Enqueue(begun, {x});
  const Output began = Dequeue(begun)[0];
  const Output sum = AllReduce(x, {.key = "sum"});
  const Output other = AllReduce(Mul(x, 2.0f), {.key = "other"});
  const Feed feed = {x, Tensor::Of<float>({2}, {1, 2})};
  Session session(graph, {.cores_per_device = 1, .communicator = communicator_});
  const auto code_of = [&](const auto& run) {
    try {
      run();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kOk;
  };
  auto first = std::async(std::launch::async, [&] {
    return code_of([&] {
      const std::vector<Feed> feeds = {feed};
      const Output fetches[] = {sum};
      const Node* const targets[] = {tell};
      session.Run(feeds, fetches, targets);
    });
  });
  session.Run(began);  // the first step has its turn
  auto second = std::async(std::launch::async, [&] {
    return code_of([&] { session.Run({feed}, other, {.timeout = std::chrono::milliseconds(50)}); });
  });
  const bool ended = second.wait_for(kCeiling) == std::future_status::ready;
  EXPECT_TRUE(ended) << "the second step waits for the first";
  EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  communicator_->Abort(Aborted("the test is over"));
  EXPECT_NE(first.get(), Code::kOk);
  EXPECT_EQ(second.get(), Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace tutti
