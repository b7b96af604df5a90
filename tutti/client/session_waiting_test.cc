// Steps that wait: what is told of one that is ended, and what it gives back.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"

namespace tutti {
namespace {

using ::tutti::testing::SessionUnderTest;

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Outputs = std::vector<Output>;
using Variables = std::span<const Output>;

class SessionWaitingTest : public ::testing::Test {
 protected:
  SessionWaitingTest() { RegisterCpuKernels(); }

  static std::string MessageFrom(Code expected, const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), expected) << error.what();
      return error.what();
    }
    return "no error";
  }
  // A run is out of time, and says what is expected. On a busy machine its time may be over before
  // it has come to what it waits for; then it gets more.
  static void ExpectOutOfTime(Session& session, Output fetch,
                              const ::testing::Matcher<const std::string&>& expected) {
    std::string message;
    for (milliseconds timeout(20); timeout < seconds(30); timeout *= 4) {
      message =
          MessageFrom(Code::kDeadlineExceeded, [&] { session.Run(fetch, {.timeout = timeout}); });
      if (::testing::Matches(expected)(message)) return;
    }
    EXPECT_THAT(message, expected);
  }

  Graph graph_;
};

TEST_F(SessionWaitingTest, ATimeoutTellsWhatWasWaitedFor) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, {2}}}, {.capacity = 5}, "q");
  const Output barrier = Barrier(graph_, 3, "b");
  const Output gate = Gate(graph_, 1, 2, "g");
  const Output clock = Clock(graph_, 2, "c");
  const Output accumulator = Accumulator(graph_, kFloat32, {2}, "a");
  const Output zero = Constant(graph_, int64_t{0});
  const Node* const advance = ClockAdvance(clock, zero).node;
  SessionUnderTest session(graph_);
  session.RunTargets({}, {advance});
  const std::pair<Output, std::string> cases[] = {
      {Dequeue(queue, "take")[0], "(waits for FIFOQueue \"q\", which has 0 elements of at most 5)"},
      {BarrierWait(barrier, "arrive"), "(waits for Barrier \"b\" of 3 participants)"},
      {GateAdmitted(gate, zero, "admitted"),
       "(waits for Gate \"g\", whose newest step is -1 and which 0 of 2 workers have left)"},
      {ClockWait(clock, zero, zero, "tick"),
       "(waits for Clock \"c\", whose slowest worker 1 is at 0)"},
      {AccumulatorTake(accumulator, zero, Constant(graph_, Tensor::Vector<int64_t>({0})), "sum"),
       "(waits for Accumulator \"a\", which holds contributions to 0 steps)"},
  };
  for (const auto& [fetch, expected] : cases) {
    ExpectOutOfTime(
        session, fetch,
        AllOf(HasSubstr("the step did not finish within its timeout of "),
              HasSubstr(" ms; not done: " + fetch.node->op() + " \"" + fetch.node->name() + "\""),
              HasSubstr(" on /job:local/task:0/cpu:0 " + expected)));
  }
}

TEST_F(SessionWaitingTest, ATimeoutListsTheFirstFewNodes) {
  Outputs taken;
  for (int i = 0; i < 7; ++i) {
    taken.push_back(Dequeue(FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}))[0]);
  }
  SessionUnderTest session(graph_);
  ExpectOutOfTime(session, AddN(taken), ContainsRegex("elements of at most 5\\) and 3 more$"));
}

TEST_F(SessionWaitingTest, ATimeoutLooksIntoLoopsAndOtherDevices) {
  Output y;
  {
    DeviceScope scope(graph_, "/cpu:1");
    const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
    const Output x = Dequeue(queue, "take")[0];
    DeviceScope other(graph_, "/cpu:0");
    y = Neg(x);
  }
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1});
  ExpectOutOfTime(
      session, y,
      AllOf(ContainsRegex("Recv .* on /job:local/task:0/cpu:0 \\(waits for the Send of"),
            HasSubstr("Dequeue \"take\""), HasSubstr("waits for FIFOQueue \"q\"")));

  Graph loops;
  const Output n = Constant(loops, int64_t{0});
  const Output end = While(
      {n}, [&](Variables v) { return Less(v[0], int64_t{1} << 60); },
      [&](Variables v) { return Outputs{Add(v[0], 1)}; }, {}, "loop")[0];
  SessionUnderTest looping(loops);
  ExpectOutOfTime(looping, end, HasSubstr("While \"loop\""));
}

TEST_F(SessionWaitingTest, AClosedSessionTellsWhatWasWaitedFor) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
  const Output started = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "started");
  Output take;
  {
    ControlScope after(graph_, {Enqueue(started, {Constant(graph_, 1.0f)})});
    take = Dequeue(queue, "take")[0];
  }
  const Output size = QueueSize(started);
  SessionUnderTest session(graph_);
  std::string message;
  std::thread waiting([&] {
    message = MessageFrom(Code::kCancelled, [&] { session.Run(take, {.timeout = seconds(60)}); });
  });
  while (session.Run(size).scalar<int64_t>() == 0) std::this_thread::yield();
  session.Close();
  waiting.join();
  EXPECT_THAT(message, HasSubstr("the session was closed; not done: Dequeue \"take\""));
}

// One run ends, the session and its other runs go on.
TEST_F(SessionWaitingTest, ARunCanBeStoppedByItsCaller) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
  const Output other = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "other");
  const Output started = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "started");
  Output take;
  {
    ControlScope after(graph_, {Enqueue(started, {Constant(graph_, 1.0f)})});
    take = Dequeue(queue, "take")[0];
  }
  const Output take_other = Dequeue(other)[0];
  const Node* put_other = Enqueue(other, {Constant(graph_, 2.0f)});
  const Output size = QueueSize(started);
  SessionUnderTest session(graph_);
  std::stop_source stop;
  std::string message;
  float got = 0;
  std::thread stopped([&] {
    message = MessageFrom(Code::kCancelled, [&] { session.Run(take, {.stop = stop.get_token()}); });
  });
  std::thread goes_on([&] { got = session.Run(take_other).scalar<float>(); });
  while (session.Run(size).scalar<int64_t>() == 0) std::this_thread::yield();
  stop.request_stop();
  stopped.join();
  EXPECT_THAT(message, HasSubstr("the caller asked for the run to stop; not done: Dequeue"));
  session.RunTargets({}, {put_other});
  goes_on.join();
  EXPECT_EQ(got, 2);
  // A stop that was requested before is as good; one that comes after the run changes nothing.
  EXPECT_THAT(MessageFrom(Code::kCancelled, [&] { session.Run(size, {.stop = stop.get_token()}); }),
              HasSubstr("the caller asked for the run to stop"));
  std::stop_source late;
  EXPECT_EQ(session.Run(size, {.stop = late.get_token()}).scalar<int64_t>(), 1);
  late.request_stop();
  EXPECT_EQ(session.Run(size).scalar<int64_t>(), 1);
}

TEST_F(SessionWaitingTest, StopsAtAnyMoment) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
  const Output take = Dequeue(queue)[0];
  SessionUnderTest session(graph_);
  for (int i = 0; i < 200; ++i) {
    std::stop_source stop;
    std::thread stopper([&] { stop.request_stop(); });
    EXPECT_THAT(
        MessageFrom(Code::kCancelled, [&] { session.Run(take, {.stop = stop.get_token()}); }),
        HasSubstr("the caller asked for the run to stop"));
    stopper.join();
  }
}

TEST_F(SessionWaitingTest, ANegativeTimeoutIsAMistake) {
  const Output x = Constant(graph_, 1.0f);
  SessionUnderTest session(graph_);
  EXPECT_EQ(
      MessageFrom(Code::kInvalidArgument, [&] { session.Run(x, {.timeout = milliseconds(-5)}); }),
      "RunOptions::timeout is -5 ms; expected a positive time, or 0 for no limit");
}

TEST_F(SessionWaitingTest, AFailureOfTheStepsOwnTellsOfNothingElse) {
  const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
  const Output take = Dequeue(queue)[0];
  const Output bad = CheckNumerics(Log(Constant(graph_, -1.0f)), "bad");
  SessionUnderTest session(graph_, {.optimize = false});
  const std::string message = MessageFrom(Code::kInvalidArgument, [&] {
    session.Run({}, {take, bad});
  });
  EXPECT_THAT(message, AllOf(HasSubstr("CheckNumerics"), Not(HasSubstr("not done"))));
}

// acquire -> check -> release; the check fails for x = -1.
struct GuardedStep {
  explicit GuardedStep(Graph& graph)
      : mutex(Mutex(graph, "m")),
        token(MutexAcquire(mutex)),
        x(Placeholder(graph, kFloat32, Shape{})) {
    ControlScope held(graph, {token.node});
    const Output checked = CheckNumerics(Log(x), "bad");
    ControlScope after(graph, {checked.node});
    release = MutexRelease(mutex, token);
  }
  Output mutex, token, x;
  Node* release = nullptr;
};

TEST_F(SessionWaitingTest, AFailedStepGivesItsMutexBack) {
  const GuardedStep step(graph_);
  SessionUnderTest session(graph_);
  for (int i = 0; i < 3; ++i) {
    MessageFrom(Code::kInvalidArgument, [&] {
      session.RunTargets({{step.x, Tensor::Scalar(-1.0f)}}, {step.release},
                         {.timeout = seconds(30)});
    });
    EXPECT_NO_THROW(session.RunTargets({{step.x, Tensor::Scalar(1.0f)}}, {step.release},
                                       {.timeout = seconds(30)}));
  }
}

TEST_F(SessionWaitingTest, AStepOutOfTimeGivesItsMutexBack) {
  const Output mutex = Mutex(graph_, "m");
  const Output token = MutexAcquire(mutex, "acquire");
  const Output queue = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 5}, "q");
  Output taken;
  {
    ControlScope held(graph_, {token.node});
    taken = Dequeue(queue)[0];
  }
  SessionUnderTest session(graph_);
  ExpectOutOfTime(session, taken, HasSubstr("waits for FIFOQueue"));
  const int64_t taken_again = session.Run(token, {.timeout = seconds(30)}).scalar<int64_t>();
  EXPECT_GE(taken_again, 2);
  // A step that succeeds keeps it for a later one to release.
  ExpectOutOfTime(
      session, token,
      HasSubstr(fmt::format("(waits for Mutex \"m\", which token {} holds)", taken_again)));
}

}  // namespace
}  // namespace tutti
