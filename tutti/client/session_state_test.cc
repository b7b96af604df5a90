// Variables, updates, queues and synchronisation through whole sessions, from several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/graph/ops/update.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"

namespace tutti {
namespace {

using ::tutti::testing::SessionUnderTest;

using std::chrono::milliseconds;

class SessionStateTest : public ::testing::Test {
 protected:
  SessionStateTest() { RegisterCpuKernels(); }

  Output Zeros(const Shape& shape, std::string_view name, DType dtype = kFloat32) {
    return Variable(
        graph_, {dtype, shape, [=](Graph& g) { return Constant(g, Tensor::Zeros(dtype, shape)); }},
        name);
  }
  // The code of the Error that `action` throws; kOk if none.
  static Code CodeFrom(const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return Code::kOk;
  }

  Graph graph_;
};

// Fetches twice, with the first value overwritten in between.
TEST_F(SessionStateTest, FetchedValuesAreTheCallersOwn) {
  const Output w = Zeros({2, 2}, "w");
  const Output c = Constant(graph_, Tensor::Zeros(kFloat32, {2, 2}));
  const Output x = Placeholder(graph_, kFloat32, {2, 2});
  const Output p = Placeholder(graph_, kBool, Shape{});
  const Output chosen = If(
      p, [&] { return std::vector{Identity(w)}; }, [&] { return std::vector{Identity(c)}; })[0];
  const Output fetches[] = {w,
                            c,
                            x,
                            Identity(w),
                            Identity(c),
                            Reshape(w, Shape{4}),
                            Reshape(c, Shape{4}),
                            chosen,
                            AssignAdd(w, c),
                            Assign(w, x)};
  const Tensor zeros = Tensor::Zeros(kFloat32, {2, 2});
  for (const bool optimize : {true, false}) {
    SessionUnderTest session(graph_, {.optimize = optimize});
    session.Initialize();
    for (const Output& fetch : fetches) {
      for (const bool branch : {true, false}) {
        const auto run = [&] {
          return session.Run({{x, zeros}, {p, Tensor::Scalar(branch)}}, {fetch, fetch});
        };
        for (Tensor& result : run()) {
          for (float& value : result.values<float>()) value = 7;
        }
        for (const Tensor& result : run()) {
          for (const float value : result.values<float>()) {
            ASSERT_EQ(value, 0) << fetch.node->Describe() << (optimize ? "" : ", not optimised");
          }
        }
      }
    }
  }
}

TEST_F(SessionStateTest, VariablesLiveFromRunToRun) {
  const Output w = Zeros({2}, "w");
  const Output delta = Placeholder(graph_, kFloat32, {2});
  const Output after = AssignAdd(w, delta);
  const Output initialized = IsInitialized(w);
  SessionUnderTest session(graph_);
  EXPECT_EQ(CodeFrom([&] { session.Run(w); }), Code::kFailedPrecondition);
  EXPECT_FALSE(session.Run(initialized).scalar<bool>());
  session.Initialize();
  EXPECT_TRUE(session.Run(initialized).scalar<bool>());
  const Tensor before = session.Run(w);
  for (int i = 1; i <= 3; ++i) {
    const Tensor value = session.Run({{delta, Tensor::Of<float>({2}, {1, 2})}}, after);
    EXPECT_EQ(value.values<float>()[1], float(2 * i));
  }
  EXPECT_EQ(before.values<float>()[0], 0) << "a fetched value never changes";
  EXPECT_EQ(session.Run(w).ToString(), "float32 [2] {3, 6}");
  session.Initialize();
  EXPECT_EQ(session.Run(w).ToString(), "float32 [2] {3, 6}") << "it had a value already";
}

// Several small variables, as one step; with passes and without.
TEST_F(SessionStateTest, AdamOverManyVariables) {
  const Output rate = Placeholder(graph_, kFloat32, {});
  const Output steps = Zeros({}, "steps", kInt64);
  const Output step = AssignAdd(steps, Constant(graph_, int64_t{1}));
  std::vector<const Node*> updates;
  std::vector<Output> variables;
  const Output gradient = Placeholder(graph_, kFloat32, {3});
  for (int i = 0; i < 5; ++i) {
    variables.push_back(Zeros({3}, "w" + std::to_string(i)));
    const Output m = Zeros({3}, "m" + std::to_string(i));
    const Output v = Zeros({3}, "v" + std::to_string(i));
    updates.push_back(ApplyAdam(variables[i], m, v, rate, step, gradient).node);
  }
  const Node* const train = Group(graph_, updates);
  for (const bool optimize : {false, true}) {
    SessionUnderTest session(graph_, {.optimize = optimize});
    session.Initialize();
    for (int i = 0; i < 10; ++i) {
      session.RunTargets(
          {{rate, Tensor::Scalar<float>(0.1f)}, {gradient, Tensor::Of<float>({3}, {1, -2, 0.5f})}},
          {train});
    }
    for (const Output& variable : variables) {
      const Tensor value = session.Run(variable);
      EXPECT_NEAR(value.values<float>()[0], -1, 1e-4) << "ten steps of 0.1 down a constant slope";
      EXPECT_NEAR(value.values<float>()[1], 1, 1e-4);
    }
  }
}

TEST_F(SessionStateTest, ProducersAndConsumers) {
  constexpr int kThreads = 2, kEach = 200;
  const Output q = FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = 5}, "q");
  const Output value = Placeholder(graph_, kInt32, {});
  Node* const put = Enqueue(q, {value});
  const Output take = Dequeue(q)[0];
  Node* const close = QueueClose(q);
  const Output size = QueueSize(q);
  SessionUnderTest session(graph_);
  std::vector<std::thread> producers, consumers;
  std::array<std::vector<int32_t>, kThreads> taken;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        session.RunTargets({{value, Tensor::Scalar<int32_t>(t * kEach + i)}}, {put});
      }
    });
    consumers.emplace_back([&, t] {
      const Code code = CodeFrom([&] {
        for (;;) taken[t].push_back(session.Run(take).scalar<int32_t>());
      });
      if (code != Code::kOutOfRange) ++wrong;
    });
  }
  for (std::thread& thread : producers) thread.join();
  session.RunTargets({}, {close});
  for (std::thread& thread : consumers) thread.join();
  EXPECT_EQ(wrong, 0);
  std::set<int32_t> all;
  for (const auto& list : taken) all.insert(list.begin(), list.end());
  EXPECT_EQ(all.size(), size_t(kThreads * kEach));
  EXPECT_EQ(taken[0].size() + taken[1].size(), size_t(kThreads * kEach));
  EXPECT_EQ(session.Run(size).scalar<int64_t>(), 0);
}

TEST_F(SessionStateTest, ATimeoutLeavesTheQueueUsable) {
  const Output q = FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = 5}, "q");
  const Output value = Placeholder(graph_, kInt32, {});
  Node* const put = Enqueue(q, {value});
  const std::vector<Output> pair = DequeueMany(q, 2);
  SessionUnderTest session(graph_);
  session.RunTargets({{value, Tensor::Scalar<int32_t>(7)}}, {put});
  EXPECT_EQ(CodeFrom([&] { session.Run(pair[0], {.timeout = milliseconds(30)}); }),
            Code::kDeadlineExceeded);
  session.RunTargets({{value, Tensor::Scalar<int32_t>(8)}}, {put});
  EXPECT_EQ(session.Run(pair[0]).ToString(), "int32 [2] {7, 8}");
}

TEST_F(SessionStateTest, ClosingTheSessionEndsWhoWaits) {
  const Output q = FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = 5}, "q");
  const Output take = Dequeue(q)[0];
  const Output wait = BarrierWait(Barrier(graph_, 2));
  SessionUnderTest session(graph_);
  std::atomic<int> cancelled = 0, started = 0;
  std::vector<std::thread> threads;
  for (const Output& output : {take, take, wait}) {
    threads.emplace_back([&, output] {
      ++started;
      if (CodeFrom([&] { session.Run(output); }) == Code::kCancelled) ++cancelled;
    });
  }
  while (started < 3) std::this_thread::yield();
  session.Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cancelled, 3);
}

TEST_F(SessionStateTest, DestroyingTheSessionEndsWhoWaits) {
  const Output started = FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = 5}, "started");
  const Output three = DequeueMany(started, 3)[0];
  const Output q = FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = 5}, "q");
  const ControlScope after(graph_, {Enqueue(started, {Constant(graph_, int32_t{1})})});
  const Output taken = Dequeue(q)[0];
  for (int round = 0; round < 20; ++round) {
    auto session = std::make_unique<SessionUnderTest>(graph_);
    Session* const running = session.get();
    std::atomic<int> cancelled = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        if (CodeFrom([&] { running->Run(taken); }) == Code::kCancelled) ++cancelled;
      });
    }
    running->Run(three);  // by then all are under way
    session.reset();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(cancelled, 3);
  }
}

TEST_F(SessionStateTest, AMutexGuardsASequenceOfNodes) {
  const Output counter = Zeros({}, "counter", kInt64);
  const Output mutex = Mutex(graph_, "mutex");
  const Output token = MutexAcquire(mutex);
  Output next;
  {
    ControlScope after(graph_, {token.node});
    next = AssignAdd(counter, Constant(graph_, int64_t{1}));
  }
  const Node* release = nullptr;
  {
    ControlScope after(graph_, {next.node});
    release = MutexRelease(mutex, token);
  }
  SessionUnderTest session(graph_);
  session.Initialize();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) session.RunTargets({}, {release});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session.Run(counter).scalar<int64_t>(), 150);
}

// Synchronous parameter-server training in miniature: workers contribute, the chief applies the
// sum, and all meet at a barrier.
TEST_F(SessionStateTest, SynchronousWorkers) {
  constexpr int kWorkers = 3, kSteps = 20;
  const Output w = Zeros({4}, "w");
  const Output accumulator = Accumulator(graph_, kFloat32, {4}, "sum");
  const Output barrier = Barrier(graph_, kWorkers + 1, "end_of_step");
  const Output step = Placeholder(graph_, kInt64, {});
  const Output worker = Placeholder(graph_, kInt64, {});
  const Output gradient = Placeholder(graph_, kFloat32, {4});
  const Node* const push = AccumulatorApply(accumulator, step, worker, gradient);
  const Output sum =
      AccumulatorTake(accumulator, step, Constant(graph_, Tensor::Vector<int64_t>({0, 1, 2})));
  const Output update = ApplyGradientDescent(w, 1.0f, sum, {.scale = 1.0f / kWorkers});
  const auto meet_after = [&](const Node* node) {
    ControlScope after(graph_, {node});
    return BarrierWait(barrier);
  };
  const Output worker_round = meet_after(push);
  const Output chief_round = meet_after(update.node);
  SessionUnderTest session(graph_);
  session.Initialize();
  std::vector<std::thread> threads;
  for (int64_t k = 0; k < kWorkers; ++k) {
    threads.emplace_back([&, k] {
      const float g = float(k + 1);
      for (int64_t s = 0; s < kSteps; ++s) {
        const Tensor round = session.Run({{step, Tensor::Scalar<int64_t>(s)},
                                          {worker, Tensor::Scalar<int64_t>(k)},
                                          {gradient, Tensor::Of<float>({4}, {g, g, g, g})}},
                                         worker_round);
        EXPECT_EQ(round.scalar<int64_t>(), s);
      }
    });
  }
  for (int64_t s = 0; s < kSteps; ++s) {
    EXPECT_EQ(session.Run({{step, Tensor::Scalar<int64_t>(s)}}, chief_round).scalar<int64_t>(), s);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(session.Run(w).ToString(), "float32 [4] {-40, -40, -40, -40}");
}

// What another device sent is summed where it lies: here in the memory of a variable.
TEST_F(SessionStateTest, AnAccumulatorLeavesTheGradientsOfOtherDevicesAlone) {
  constexpr int kMostWorkers = 3;
  Output mine;
  {
    const DeviceScope scope(graph_, "/cpu:1");
    mine = Zeros({40}, "mine");
  }
  const Output step = Placeholder(graph_, kInt64, {});
  std::vector<Output> sums;
  {
    const DeviceScope scope(graph_, "/cpu:0");
    const Output accumulator = Accumulator(graph_, kFloat32, {40}, "sum");
    std::vector<const Node*> pushes;
    std::vector<int64_t> slots;
    for (int64_t worker = 0; worker < kMostWorkers; ++worker) {
      const Output slot = Constant(graph_, Tensor::Scalar<int64_t>(worker));
      pushes.push_back(AccumulatorApply(accumulator, step, slot, mine));
      slots.push_back(worker);
      const ControlScope after(graph_, pushes);
      const Output all = Constant(graph_, Tensor::Of<int64_t>({worker + 1}, slots));
      sums.push_back(AccumulatorTake(accumulator, step, all));
    }
  }
  const Node* const assign =
      Assign(mine, Constant(graph_, Tensor::Of<float>({40}, std::vector<float>(40, 3)))).node;
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1});
  session.Initialize();
  session.Run({}, {}, {assign});
  for (int64_t worker = 0; worker < kMostWorkers; ++worker) {
    const Tensor sum = session.Run({{step, Tensor::Scalar<int64_t>(worker)}}, sums[size_t(worker)]);
    EXPECT_EQ(sum.values<float>()[39], 3.0f * float(worker + 1));
    EXPECT_EQ(session.Run(mine).values<float>()[39], 3.0f);
  }
}

}  // namespace
}  // namespace tutti
