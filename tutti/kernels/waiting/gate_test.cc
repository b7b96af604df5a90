// What decides which worker takes part in which step: gates, clocks, dispensers and ledgers.
#include "tutti/device/step_cleanup.h"
#include "tutti/kernels/waiting/sync_resources.h"
#include "tutti/kernels/waiting/sync_under_test.h"

namespace tutti {
namespace {

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

TEST_F(SyncTest, AConfirmedEntryStays) {
  const auto ledger = std::make_shared<LedgerResource>(LedgerResource::Config{"l", 1});
  StepCleanup failed, confirmed;
  EXPECT_TRUE(*ledger->Enter(0, 3, &confirmed));
  EXPECT_TRUE(ledger->Confirm(0, 3).ok());
  EXPECT_TRUE(*ledger->Enter(0, 4, &failed));
  failed.Undo();
  confirmed.Undo();
  EXPECT_FALSE(*ledger->Enter(0, 3, nullptr)) << "the update was made";
  EXPECT_TRUE(*ledger->Enter(0, 4, nullptr)) << "the update was not made";
  NodeUnderTest confirm(device_, *LedgerConfirm(Ledger(graph_, 2, "l"), Integer(), Integer()));
  EXPECT_TRUE(confirm.Run({{}, Number(1), Number(0)}).ok());
  EXPECT_EQ(MessageOf(confirm.Run({{}, Number(2), Number(0)})),
            "worker is 2; ledger \"l\" has workers 0 to 1");
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

}  // namespace
}  // namespace tutti
