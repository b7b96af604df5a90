#include "tutti/graph/ops/sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tutti/device/step_cleanup.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/node_under_test.h"
#include "tutti/kernels/sync_resources.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor Number(int64_t value) { return Tensor::Scalar<int64_t>(value); }

class SyncTest : public ::testing::Test {
 protected:
  Output Integer() { return Placeholder(graph_, kInt64, {}); }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

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
      AllOf(HasSubstr("Barrier \"b\" (sync_test.cc:"),
            HasSubstr(" on /job:local/task:0/cpu:0: it exists there (container \"\") with 1 "
                      "participants, and this graph declares 2 participants; use the same "
                      "declaration, another name or another container")));
  EXPECT_THAT(
      message([](Graph& g) { return MutexAcquire(Mutex(g, "b")); }),
      AllOf(HasSubstr("Mutex \"b\""),
            HasSubstr("there \"b\" is a Barrier already (container \"\"); one name stands for one "
                      "thing: use another name or another container")));
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

class AccumulatorTest : public SyncTest {
 protected:
  Output accumulator_ = Accumulator(graph_, kFloat32, {3, 1}, "acc");
  Node* apply_ =
      AccumulatorApply(accumulator_, Integer(), Integer(), Placeholder(graph_, kFloat32, {3, 1}));
  Node* apply_rows_ =
      AccumulatorApplyRows(accumulator_, Integer(), Integer(), Placeholder(graph_, kInt32, {-1}),
                           Placeholder(graph_, kFloat32, {-1, 1}));
  Output take_ = AccumulatorTake(accumulator_, Integer(), Placeholder(graph_, kInt64, {-1}));
};

TEST_F(AccumulatorTest, SumsInSlotOrderWhateverTheArrival) {
  // In float32 the order of these three matters.
  const float values[] = {1e8f, -1e8f, 0.25f};
  std::vector<int64_t> arrival = {0, 1, 2};
  int64_t step = 0;
  do {
    NodeUnderTest take(device_, take_);
    take.Start({{}, Number(step), Tensor::Of<int64_t>({3}, {2, 1, 0})});
    for (const int64_t slot : arrival) {
      EXPECT_FALSE(take.finished());
      const float v = values[slot];
      ASSERT_TRUE(NodeUnderTest(device_, *apply_)
                      .Run({{}, Number(step), Number(slot), Tensor::Of<float>({3, 1}, {v, v, v})})
                      .ok());
    }
    ASSERT_TRUE(take.Wait().ok());
    EXPECT_EQ(take.output().values<float>()[0], (1e8f + -1e8f) + 0.25f);
    ++step;
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

TEST_F(AccumulatorTest, RowsAndDenseTogether) {
  const Tensor indices = Tensor::Of<int32_t>({3}, {2, 0, 2});
  const Tensor rows = Tensor::Of<float>({3, 1}, {1, 2, 4});
  NodeUnderTest apply_rows(device_, *apply_rows_);
  ASSERT_TRUE(apply_rows.Run({{}, Number(0), Number(1), indices, rows}).ok());
  ASSERT_TRUE(NodeUnderTest(device_, *apply_)
                  .Run({{}, Number(0), Number(0), Tensor::Of<float>({3, 1}, {10, 20, 30})})
                  .ok());
  NodeUnderTest take(device_, take_);
  ASSERT_TRUE(take.Run({{}, Number(0), Tensor::Of<int64_t>({2}, {0, 1})}).ok());
  EXPECT_TRUE(take.output().BitwiseEquals(Tensor::Of<float>({3, 1}, {12, 20, 35})));

  ASSERT_TRUE(apply_rows.Run({{}, Number(1), Number(5), indices, rows}).ok());
  ASSERT_TRUE(apply_rows
                  .Run({{},
                        Number(1),
                        Number(3),
                        Tensor::Of<int32_t>({1}, {1}),
                        Tensor::Of<float>({1, 1}, {8})})
                  .ok());
  NodeUnderTest take_rows(
      device_,
      AccumulatorTakeRows(accumulator_, Integer(), Placeholder(graph_, kInt64, {-1})).rows);
  ASSERT_TRUE(take_rows.Run({{}, Number(1), Tensor::Of<int64_t>({2}, {5, 3})}).ok());
  EXPECT_TRUE(take_rows.output(0).BitwiseEquals(Tensor::Of<int64_t>({4}, {1, 2, 0, 2})));
  EXPECT_TRUE(take_rows.output(1).BitwiseEquals(Tensor::Of<float>({4, 1}, {8, 1, 2, 4})));
  EXPECT_EQ(MessageOf(apply_rows.Run({{},
                                      Number(2),
                                      Number(0),
                                      Tensor::Of<int32_t>({1}, {3}),
                                      Tensor::Of<float>({1, 1}, {8})})),
            "indices[0] is 3; accumulator \"acc\" is [3, 1] and has rows 0 to 2");
}

TEST_F(AccumulatorTest, LateAndDoubleContributionsAreErrors) {
  const Tensor ones = Tensor::Of<float>({3, 1}, {1, 1, 1});
  NodeUnderTest apply(device_, *apply_), take(device_, take_), other(device_, take_);
  ASSERT_TRUE(apply.Run({{}, Number(4), Number(0), ones}).ok());
  EXPECT_EQ(MessageOf(apply.Run({{}, Number(4), Number(0), ones})),
            "slot 0 has contributed to step 4 of accumulator \"acc\" already");
  other.Start({{}, Number(3), Tensor::Of<int64_t>({1}, {0})});
  ASSERT_TRUE(take.Run({{}, Number(4), Tensor::Of<int64_t>({1}, {0})}).ok());
  EXPECT_EQ(other.Wait().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(MessageOf(apply.Run({{}, Number(4), Number(1), ones})),
            "slot 1 comes too late to step 4: accumulator \"acc\" was taken up to step 4");
  EXPECT_EQ(take.Run({{}, Number(4), Tensor::Of<int64_t>({1}, {0})}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(take.Run({{}, Number(5), Tensor::Of<int64_t>({2}, {1, 1})})),
            "slots name 1 twice");
  take.Start({{}, Number(5), Tensor::Of<int64_t>({1}, {0})});
  take.Cancel();
  EXPECT_EQ(take.Wait().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(take.Run({{}, Number(5), Tensor(kInt64, {0})}).ok()) << "nobody: the sum is 0";
  EXPECT_EQ(take.output().values<float>()[2], 0);
}

TEST_F(AccumulatorTest, AddsWhatIsNextInOrderAsItComes) {
  const Output large = Accumulator(graph_, kFloat32, {1024}, "large");
  NodeUnderTest apply(device_, *AccumulatorApply(large, Integer(), Integer(),
                                                 Placeholder(graph_, kFloat32, {1024})));
  NodeUnderTest take(device_, AccumulatorTake(large, Integer(), Placeholder(graph_, kInt64, {-1})));
  const auto contribute = [&](int64_t slot) {
    Tensor values(kFloat32, {1024});
    for (float& v : values.values<float>()) v = float(1 << slot);
    ASSERT_TRUE(apply.Run({{}, Number(0), Number(slot), values}).ok());
  };
  const auto held = [&] { return device_.pool().usage().in_use / 4096; };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1, 2, 3})});
  contribute(0);
  EXPECT_EQ(held(), 1);
  contribute(1);
  EXPECT_EQ(held(), 1) << "added to the first";
  contribute(3);
  EXPECT_EQ(held(), 2) << "not its turn yet";
  EXPECT_FALSE(take.finished());
  contribute(2);
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(held(), 1);
  EXPECT_EQ(take.output().values<float>()[1023], 15);
}

// As a push does that is sent again after a connection was lost.
TEST_F(AccumulatorTest, ARepeatedContributionCountsOnce) {
  const Tensor ones = Tensor::Of<float>({3, 1}, {1, 1, 1});
  NodeUnderTest apply(device_,
                      *AccumulatorApply(accumulator_, Integer(), Integer(),
                                        Placeholder(graph_, kFloat32, {3, 1}), {.once = true}));
  NodeUnderTest take(device_, take_);
  const auto contribute = [&](int64_t slot) {
    return apply.Run({{}, Number(0), Number(slot), ones});
  };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  EXPECT_TRUE(contribute(0).ok());
  EXPECT_TRUE(contribute(0).ok()) << "it is in the sum already";
  EXPECT_TRUE(contribute(1).ok());
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(take.output().values<float>()[0], 2);
  EXPECT_TRUE(contribute(1).ok()) << "the step was taken with it";
  EXPECT_EQ(contribute(2).code(), absl::StatusCode::kFailedPrecondition)
      << "a first contribution that comes too late is no repetition";
}

TEST_F(AccumulatorTest, ACancelledTakeLeavesTheSumToTheNext) {
  NodeUnderTest apply(device_, *apply_), take(device_, take_), other(device_, take_);
  const auto contribute = [&](int64_t slot, float v) {
    ASSERT_TRUE(
        apply.Run({{}, Number(0), Number(slot), Tensor::Of<float>({3, 1}, {v, v, v})}).ok());
  };
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  contribute(0, 1);
  take.Cancel();
  EXPECT_EQ(take.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(MessageOf(other.Run({{}, Number(0), Tensor::Vector<int64_t>({1})})),
            "the sum of step 0 of accumulator \"acc\" was begun with slots 0, for a Take that was "
            "cancelled; take it with slots that begin with these");
  take.Start({{}, Number(0), Tensor::Vector<int64_t>({0, 1})});
  contribute(1, 2);
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_EQ(take.output().values<float>()[2], 3);
}

TEST_F(SyncTest, GateAdmitsTheFirstOfAStep) {
  const Output gate = Gate(graph_, 2, 3, "gate");
  NodeUnderTest enter(device_, GateEnter(gate, Integer(), Integer()));
  NodeUnderTest admitted(device_, GateAdmitted(gate, Integer()));
  NodeUnderTest leave(device_, *GateLeave(gate, Integer()));
  NodeUnderTest refused(device_, GateRefused(gate));
  NodeUnderTest contains(device_, GateContains(gate, Integer(), Integer()));
  const auto contained = [&](int64_t step, int64_t worker) {
    EXPECT_TRUE(contains.Run({{}, Number(step), Number(worker)}).ok());
    return contains.output().scalar<bool>();
  };
  const auto enters = [&](int64_t step, int64_t worker) {
    const absl::Status status = enter.Run({{}, Number(step), Number(worker)});
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() && enter.output().scalar<bool>();
  };
  admitted.Start({{}, Number(0)});
  EXPECT_TRUE(enters(0, 2));
  EXPECT_TRUE(enters(0, 2)) << "asking again gives the same answer";
  EXPECT_TRUE(enters(1, 2)) << "steps are independent";
  EXPECT_FALSE(admitted.finished());
  EXPECT_TRUE(enters(0, 0));
  ASSERT_TRUE(admitted.Wait().ok());
  EXPECT_TRUE(admitted.output().BitwiseEquals(Tensor::Of<int64_t>({2}, {0, 2})));
  EXPECT_FALSE(enters(0, 1));
  EXPECT_FALSE(enters(0, 1));
  ASSERT_TRUE(refused.Run({}).ok());
  EXPECT_EQ(refused.output().scalar<int64_t>(), 1);
  // Two of three leave: step 1 is complete with the one that is in.
  admitted.Start({{}, Number(1)});
  ASSERT_TRUE(leave.Run({{}, Number(0)}).ok());
  EXPECT_FALSE(admitted.finished());
  ASSERT_TRUE(leave.Run({{}, Number(1)}).ok());
  ASSERT_TRUE(admitted.Wait().ok());
  EXPECT_TRUE(admitted.output().BitwiseEquals(Tensor::Of<int64_t>({1}, {2})));
  EXPECT_TRUE(contained(0, 0)) << "also after it has left";
  EXPECT_FALSE(contained(0, 1));
  EXPECT_FALSE(contained(7, 2)) << "asking admits nobody";
  EXPECT_EQ(MessageOf(enter.Run({{}, Number(1), Number(1)})), "worker 1 has left gate \"gate\"");
  EXPECT_EQ(MessageOf(enter.Run({{}, Number(1), Number(3)})),
            "worker is 3; gate \"gate\" has workers 0 to 2");
  // Steps long gone are refused, and nobody waits for them.
  NodeUnderTest old(device_, GateAdmitted(gate, Integer()));
  EXPECT_TRUE(enters(5000, 2));
  EXPECT_FALSE(enters(5000 - 1024, 2));
  EXPECT_EQ(MessageOf(old.Run({{}, Number(7)})),
            "step is 7; gate \"gate\" remembers steps from 3977 on");
}

TEST_F(SyncTest, GateTakesAWorkerBack) {
  const Output gate = Gate(graph_, 2, 2, "gate");
  NodeUnderTest enter(device_, GateEnter(gate, Integer(), Integer()));
  NodeUnderTest admitted(device_, GateAdmitted(gate, Integer()));
  NodeUnderTest leave(device_, *GateLeave(gate, Integer()));
  NodeUnderTest join(device_, GateJoin(gate, Integer()));
  NodeUnderTest refusals(device_, GateRefusals(gate));
  const auto enters = [&](int64_t step, int64_t worker) {
    const absl::Status status = enter.Run({{}, Number(step), Number(worker)});
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() && enter.output().scalar<bool>();
  };
  ASSERT_TRUE(leave.Run({{}, Number(1)}).ok());
  for (int64_t step = 0; step < 3; ++step) EXPECT_TRUE(enters(step, 0));
  ASSERT_TRUE(join.Run({{}, Number(1)}).ok());
  EXPECT_EQ(join.output().scalar<int64_t>(), 2) << "the newest step";
  ASSERT_TRUE(admitted.Run({{}, Number(2)}).ok()) << "a step that has begun does not wait for it";
  EXPECT_TRUE(admitted.output().BitwiseEquals(Tensor::Vector<int64_t>({0})));
  EXPECT_FALSE(enters(2, 1)) << "and is complete without it";
  admitted.Start({{}, Number(3)});
  EXPECT_TRUE(enters(3, 0));
  EXPECT_FALSE(admitted.finished()) << "the next one waits for it";
  EXPECT_TRUE(enters(3, 1));
  ASSERT_TRUE(admitted.Wait().ok());
  EXPECT_TRUE(admitted.output().BitwiseEquals(Tensor::Vector<int64_t>({0, 1})));
  ASSERT_TRUE(refusals.Run({}).ok());
  EXPECT_TRUE(refusals.output().BitwiseEquals(Tensor::Vector<int64_t>({0, 1})));
  // One that was started anew before it was missed: who waited for its former self goes on.
  admitted.Start({{}, Number(4)});
  EXPECT_TRUE(enters(4, 0));
  EXPECT_FALSE(admitted.finished());
  ASSERT_TRUE(join.Run({{}, Number(1)}).ok());
  ASSERT_TRUE(admitted.Wait().ok());
  EXPECT_EQ(join.Run({{}, Number(2)}).code(), absl::StatusCode::kOutOfRange);
}

TEST_F(SyncTest, ClockTakesAWorkerBack) {
  const Output clock = Clock(graph_, 3, "clock");
  NodeUnderTest advance(device_, ClockAdvance(clock, Integer()));
  NodeUnderTest wait(device_, ClockWait(clock, Integer(), Integer()));
  NodeUnderTest leave(device_, *ClockLeave(clock, Integer()));
  NodeUnderTest join(device_, ClockJoin(clock, Integer()));
  const auto advances = [&](int64_t worker, int times) {
    for (int i = 0; i < times; ++i) ASSERT_TRUE(advance.Run({{}, Number(worker)}).ok());
  };
  ASSERT_TRUE(leave.Run({{}, Number(2)}).ok());
  advances(0, 5);
  advances(1, 7);
  ASSERT_TRUE(join.Run({{}, Number(2)}).ok());
  EXPECT_EQ(join.output().scalar<int64_t>(), 5) << "where the slowest stands";
  advances(0, 2);
  wait.Start({{}, Number(0), Number(1)});
  EXPECT_FALSE(wait.finished()) << "it is waited for again";
  advances(2, 1);
  ASSERT_TRUE(wait.Wait().ok());
  // Its former self still waits when it is started anew.
  advances(2, 9);
  wait.Start({{}, Number(2), Number(0)});
  ASSERT_TRUE(join.Run({{}, Number(2)}).ok());
  EXPECT_EQ(wait.Wait().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(join.output().scalar<int64_t>(), 7);
  // When all have left, the clock stands still.
  for (int64_t worker = 0; worker < 3; ++worker) ASSERT_TRUE(leave.Run({{}, Number(worker)}).ok());
  ASSERT_TRUE(join.Run({{}, Number(1)}).ok());
  EXPECT_EQ(join.output().scalar<int64_t>(), 7);
}

TEST_F(SyncTest, ADispenserGivesOutAgainWhatWasNotFinished) {
  const Output dispenser = Dispenser(graph_, 3, "dispenser");
  NodeUnderTest take(device_, DispenserTake(dispenser, Integer()));
  NodeUnderTest give_back(device_, DispenserReturn(dispenser, Integer()));
  NodeUnderTest reset(device_, *DispenserReset(dispenser));
  const auto takes = [&](int64_t worker) {
    EXPECT_TRUE(take.Run({{}, Number(worker)}).ok());
    return take.output().scalar<int64_t>();
  };
  const auto returns = [&](int64_t worker) {
    EXPECT_TRUE(give_back.Run({{}, Number(worker)}).ok());
    const int64_t* held = give_back.output().data<int64_t>();
    return std::pair(held[0], held[1]);
  };
  EXPECT_EQ(takes(0), 0);
  EXPECT_EQ(takes(1), 1);
  EXPECT_EQ(takes(2), 2);
  EXPECT_EQ(takes(1), 3);
  EXPECT_EQ(takes(1), 4) << "by now 1 is finished";
  EXPECT_EQ(returns(1), std::pair(int64_t{3}, int64_t{4}));
  EXPECT_EQ(returns(1), std::pair(int64_t{-1}, int64_t{-1})) << "it has nothing any more";
  EXPECT_EQ(takes(2), 3);
  EXPECT_EQ(takes(0), 4);
  EXPECT_EQ(takes(0), 5);
  EXPECT_EQ(returns(2), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(takes(2), 2) << "the smallest first, also for the one that came back";
  EXPECT_EQ(takes(0), 3);
  EXPECT_EQ(returns(0), std::pair(int64_t{5}, int64_t{3})) << "in the order in which it took them";
  ASSERT_TRUE(reset.Run({{}}).ok());
  EXPECT_EQ(takes(2), 0);
  EXPECT_EQ(returns(0), std::pair(int64_t{-1}, int64_t{-1}));
  EXPECT_EQ(take.Run({{}, Number(3)}).code(), absl::StatusCode::kOutOfRange);
}

TEST_F(SyncTest, ALedgerCountsEveryStepOnce) {
  const Output ledger = Ledger(graph_, 2, "ledger");
  NodeUnderTest enter(device_, LedgerEnter(ledger, Integer(), Integer()));
  const auto enters = [&](int64_t worker, int64_t step) {
    const absl::Status status = enter.Run({{}, Number(worker), Number(step)});
    EXPECT_TRUE(status.ok()) << status;
    return status.ok() && enter.output().scalar<bool>();
  };
  EXPECT_TRUE(enters(0, 0));
  EXPECT_FALSE(enters(0, 0));
  EXPECT_TRUE(enters(1, 0)) << "workers are independent";
  EXPECT_TRUE(enters(0, 4));
  EXPECT_FALSE(enters(0, 3)) << "it is older than what was entered";
  EXPECT_EQ(MessageOf(enter.Run({{}, Number(2), Number(0)})),
            "worker is 2; ledger \"ledger\" has workers 0 to 1");
}

TEST_F(SyncTest, AFailedRunTakesItsEntryBack) {
  const auto ledger = std::make_shared<LedgerResource>(LedgerResource::Config{"l", 1});
  StepCleanup failed;
  EXPECT_TRUE(*ledger->Enter(0, 3, nullptr));
  EXPECT_TRUE(*ledger->Enter(0, 5, &failed));
  EXPECT_FALSE(*ledger->Enter(0, 5, nullptr));
  failed.Undo();
  EXPECT_FALSE(*ledger->Enter(0, 3, nullptr));
  EXPECT_TRUE(*ledger->Enter(0, 5, nullptr));
}

TEST_F(SyncTest, ClockBoundsTheLead) {
  const Output clock = Clock(graph_, 3, "clock");
  NodeUnderTest advance(device_, ClockAdvance(clock, Integer()));
  NodeUnderTest wait(device_, ClockWait(clock, Integer(), Integer()));
  NodeUnderTest strict(device_, ClockWait(clock, Integer(), Integer()));
  NodeUnderTest leave(device_, *ClockLeave(clock, Integer()));
  for (int64_t time = 1; time <= 3; ++time) {
    ASSERT_TRUE(advance.Run({{}, Number(0)}).ok());
    EXPECT_EQ(advance.output().scalar<int64_t>(), time);
  }
  EXPECT_TRUE(wait.Run({{}, Number(0), Number(3)}).ok());
  wait.Start({{}, Number(0), Number(2)});
  strict.Start({{}, Number(0), Number(0)});
  ASSERT_TRUE(advance.Run({{}, Number(1)}).ok());
  EXPECT_FALSE(wait.finished()) << "worker 2 still stands at 0";
  ASSERT_TRUE(advance.Run({{}, Number(2)}).ok());
  ASSERT_TRUE(wait.Wait().ok());
  EXPECT_EQ(wait.output().scalar<int64_t>(), 1);
  EXPECT_FALSE(strict.finished());
  ASSERT_TRUE(leave.Run({{}, Number(1)}).ok());
  EXPECT_FALSE(strict.finished());
  ASSERT_TRUE(leave.Run({{}, Number(2)}).ok());
  ASSERT_TRUE(strict.Wait().ok()) << "the dead are not waited for";
  ASSERT_TRUE(leave.Run({{}, Number(2)}).ok());
  EXPECT_EQ(MessageOf(advance.Run({{}, Number(2)})), "worker 2 has left clock \"clock\"");
  EXPECT_EQ(MessageOf(advance.Run({{}, Number(-1)})),
            "worker is -1; clock \"clock\" has workers 0 to 2");
  EXPECT_EQ(MessageOf(wait.Run({{}, Number(0), Number(-1)})),
            "staleness is -1; expected 0 or more");
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
