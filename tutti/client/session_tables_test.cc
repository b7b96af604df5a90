// Look-ups in tables that other steps update meanwhile, and pushes of workers that come and go.
// Every client is a Session on a thread; all share one Server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/metrics/metrics.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/graph/ops/update.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

constexpr int64_t kRows = 500, kWidth = 64;

class TablesTest : public ::testing::Test {
 protected:
  TablesTest() : server_({.cores_per_device = 1}) { RegisterCpuKernels(); }

  static Output Zeros(Graph& graph, const Shape& shape, const char* name) {
    return Variable(graph,
                    {kFloat32, shape,
                     [shape](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, shape)); }},
                    name);
  }
  static Output Table(Graph& graph) { return Zeros(graph, {kRows, kWidth}, "table"); }
  int64_t ClonedBytes() const { return server_.stats()[0].cloned_bytes; }

  Server server_;
};

// A client whose step has read what it reads of the table, and waits for `released`.
class WaitingReader {
 public:
  // `read` builds what is read, from the table and the indices that come when it is released.
  template <typename Read>
  WaitingReader(Server& server, Output (*table)(Graph&), const Read& read) {
    const Output started = FIFOQueue(graph_, {{kFloat32, {}}}, {.capacity = 1}, "started");
    const Output released = FIFOQueue(graph_, {{kInt64, {2}}}, {.capacity = 1}, "released");
    const Output own = table(graph_);
    const Output first = Gather(own, Constant(graph_, Tensor::Vector<int64_t>({0})));
    const Node* start = nullptr;
    {
      const ControlScope after(graph_, {own.node, first.node});
      start = Enqueue(started, {Constant(graph_, 1.0f)});
    }
    Output indices;
    {
      const ControlScope after(graph_, {start});
      indices = Dequeue(released)[0];
    }
    result_ = read(own, indices);
    const Output has_started = Dequeue(started)[0];
    release_ = Enqueue(released, {Constant(graph_, Tensor::Vector<int64_t>({3, 3}))});
    session_.emplace(graph_, SessionOptions{.server = &server});
    session_->Initialize();
    thread_ = std::thread([this] { value_ = session_->Run(result_); });
    session_->Run(has_started);
  }
  Tensor Release() {
    session_->RunTargets({}, {release_});
    thread_.join();
    return value_;
  }

 private:
  Graph graph_;
  Output result_;
  std::optional<Session> session_;
  std::thread thread_;
  Tensor value_;
  const Node* release_ = nullptr;
};

// A client that adds 1 to row 3.
void AddToRow3(Server& server, Output (*table)(Graph&)) {
  Graph graph;
  Tensor ones(kFloat32, {1, kWidth});
  for (float& v : ones.values<float>()) v = 1;
  const Output update = ScatterAdd(table(graph), Constant(graph, Tensor::Vector<int64_t>({3})),
                                   Constant(graph, ones));
  Session session(graph, {.server = &server});
  session.RunTargets({}, {update.node});
}

TEST_F(TablesTest, ALookUpThatMeetsAnUpdateCopiesNoTable) {
  WaitingReader reader(server_, Table,
                       [](Output table, Output indices) { return Gather(table, indices); });
  AddToRow3(server_, Table);
  EXPECT_EQ(ClonedBytes(), 0);
  EXPECT_EQ(reader.Release().values<float>()[kWidth], 1) << "it takes the rows when it needs them";
  EXPECT_EQ(server_.stats()[0].variable_bytes, kRows * kWidth * 4);
}

TEST_F(TablesTest, AReaderOfTheWholeTableKeepsItAndTheCopyIsCounted) {
  WaitingReader reader(server_, Table, [](Output table, Output indices) {
    return Mul(table, Cast(Gather(indices, 0), kFloat32));
  });
  AddToRow3(server_, Table);
  EXPECT_EQ(ClonedBytes(), kRows * kWidth * 4);
  MetricsRegistry metrics;
  server_.AddMetrics(metrics);
  EXPECT_THAT(metrics.ToPrometheus(),
              ::testing::HasSubstr("tutti_device_cloned_bytes_total{device=\"/job:local/task:0/"
                                   "cpu:0\"} 128000\n"));
  EXPECT_EQ(reader.Release().values<float>()[3 * kWidth], 0) << "the value from before the update";
}

// What a step reads of a table that it updates itself is the value from before.
TEST_F(TablesTest, AStepReadsBeforeItUpdates) {
  Graph graph;
  const Output table = Table(graph);
  const Output indices = Constant(graph, Tensor::Vector<int64_t>({1, 7}));
  Tensor ones(kFloat32, {2, kWidth});
  for (float& v : ones.values<float>()) v = 1;
  const Output before = Gather(table, indices);
  const Output update = ScatterAdd(table, indices, Constant(graph, ones));
  const Output later = Gather(table, indices);  // built after the update: still the old value
  const Output after = Gather(update, indices);
  Session session(graph, {.server = &server_});
  session.Initialize();
  for (int step = 0; step < 3; ++step) {
    const std::vector<Tensor> values = session.Run({}, {before, later, after});
    EXPECT_EQ(values[0].values<float>()[kWidth], float(step));
    EXPECT_EQ(values[1].values<float>()[kWidth], float(step));
    EXPECT_EQ(values[2].values<float>()[kWidth], float(step + 1));
  }
}

// Rows are updated whole: all elements of a row that is read are of one update.
TEST_F(TablesTest, TheUpdateOfARowIsAtomic) {
  constexpr int kSteps = 300;
  constexpr int64_t kWide = 4096, kFew = 16;
  const auto wide = [](Graph& graph) { return Zeros(graph, {kFew, kWide}, "wide"); };
  Tensor every_row(kInt64, {kFew});
  for (int64_t i = 0; i < kFew; ++i) every_row.data<int64_t>()[i] = i;
  {
    Graph graph;
    wide(graph);
    Session(graph, {.server = &server_}).Initialize();
  }
  std::atomic<bool> stop = false;
  std::atomic<int64_t> torn = 0, looks = 0;
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      Graph graph;
      const Output rows = Gather(wide(graph), Constant(graph, every_row));
      Session session(graph, {.server = &server_});
      do {
        const Tensor value = session.Run(rows);
        for (int64_t row = 0; row < kFew; ++row) {
          const float* const at = value.data<float>() + row * kWide;
          torn += std::count(at, at + kWide, at[0]) != kWide;
        }
        ++looks;
      } while (!stop);
    });
  }
  Graph graph;
  const Output rows = Placeholder(graph, kFloat32, {kFew, kWide});
  const Output update =
      ApplyGradientDescentSparse(wide(graph), -1.0f, Constant(graph, every_row), rows);
  Session session(graph, {.server = &server_});
  Tensor ones(kFloat32, {kFew, kWide});
  for (float& v : ones.values<float>()) v = 1;
  for (int step = 0; step < kSteps || looks < 20; ++step) {
    session.RunTargets({{rows, ones}}, {update.node});
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0) << "of " << looks << " looks";
  EXPECT_EQ(ClonedBytes(), 0);
}

// Every worker sends each push twice, as after a lost connection; each is applied once.
TEST_F(TablesTest, PushesThatAreSentTwiceAreAppliedOnce) {
  constexpr int kWorkers = 3, kSteps = 30;
  const auto build = [](Graph& graph) { return Zeros(graph, {4}, "w"); };
  {
    Graph graph;
    build(graph);
    Session(graph, {.server = &server_}).Initialize();
  }
  std::vector<std::thread> workers;
  for (int64_t k = 0; k < kWorkers; ++k) {
    workers.emplace_back([&, k] {
      Graph graph;
      const Output w = build(graph);
      const Output step = Placeholder(graph, kInt64, {});
      const Output first = LedgerEnter(Ledger(graph, kWorkers, "pushes"), Constant(graph, k), step);
      const Output update =
          ApplyGradientDescent(w, -1.0f, Constant(graph, Tensor::Of<float>({4}, {1, 1, 1, 1})),
                               {.scale = Cast(first, kFloat32)});
      Session session(graph, {.server = &server_});
      for (int64_t s = 0; s < kSteps; ++s) {
        for (int sent = 0; sent < 2; ++sent) {
          session.RunTargets({{step, Tensor::Scalar(s)}}, {update.node});
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  Graph graph;
  const Output w = build(graph);
  Session session(graph, {.server = &server_});
  EXPECT_EQ(session.Run(w).ToString(), "float32 [4] {90, 90, 90, 90}");
}

// Bounded staleness with a worker that goes and comes back where the others are.
TEST_F(TablesTest, AWorkerComesBackToTheClock) {
  struct Worker {
    Worker(Server& server, int64_t number)
        : clock(Clock(graph, 2, "clock")),
          self(Constant(graph, number)),
          advance(ClockAdvance(clock, self)),
          leave(ClockLeave(clock, self)),
          join(ClockJoin(clock, self)) {
      const ControlScope after(graph, {advance.node});
      step = ClockWait(clock, self, Constant(graph, int64_t{1}));
      session.emplace(graph, SessionOptions{.server = &server});
    }
    Graph graph;
    Output clock, self, advance;
    const Node* leave;
    Output join, step;
    std::optional<Session> session;
  };
  Worker first(server_, 0), second(server_, 1);
  first.session->Run(first.step);
  second.session->RunTargets({}, {second.leave});
  for (int i = 0; i < 10; ++i) first.session->Run(first.step);
  EXPECT_EQ(second.session->Run(second.join).scalar<int64_t>(), 11);
  const Output wait =
      ClockWait(first.clock, first.self, Constant(first.graph, int64_t{1}), "wait_again");
  first.session->Run(first.step);
  // Now it would lead by two.
  try {
    first.session->Run(first.step, {.timeout = std::chrono::milliseconds(20)});
    FAIL() << "the worker that is back must be waited for";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
  }
  std::thread waits([&] { first.session->Run(wait); });
  for (int i = 0; i < 3; ++i) second.session->RunTargets({}, {second.advance.node});
  waits.join();
}

// One client's view of what synchronous workers share: a gate, an accumulator, and for each worker
// a queue of the steps that it may begin.
struct SyncClient {
  static constexpr int64_t kWorkers = 3;

  explicit SyncClient(Server& server)
      : gate(Gate(graph, kWorkers, kWorkers, "gate")),
        sums(Accumulator(graph, kFloat32, {}, "sums")),
        step(Placeholder(graph, kInt64, {})),
        worker(Placeholder(graph, kInt64, {})),
        enter(GateEnter(gate, step, worker)),
        push(AccumulatorApply(sums, step, worker, Cast(Add(worker, int64_t{1}), kFloat32),
                              {.once = true})),
        leave(GateLeave(gate, worker)),
        join(GateJoin(gate, worker)),
        admitted(GateAdmitted(gate, step)),
        sum(AccumulatorTake(sums, step, admitted)) {
    for (int64_t k = 0; k < kWorkers; ++k) {
      const Output queue =
          FIFOQueue(graph, {{kInt64, {}}}, {.capacity = 100}, "steps_of_" + std::to_string(k));
      put.push_back(Enqueue(queue, {step}));
      take.push_back(Dequeue(queue)[0]);
    }
    session.emplace(graph, SessionOptions{.server = &server});
  }
  std::vector<Feed> Feeds(int64_t s, int64_t k) const {
    return {{step, Tensor::Scalar(s)}, {worker, Tensor::Scalar(k)}};
  }
  Tensor Run(int64_t s, int64_t k, Output fetch) {
    return session->Run(Feeds(s, k), std::span(&fetch, 1))[0];
  }
  void Run(int64_t s, int64_t k, const Node* target) {
    session->Run(Feeds(s, k), {}, std::span(&target, 1));
  }
  // Takes part in step s, or in the first after it that has room; returns the next step to begin.
  int64_t TakePart(int64_t s, int64_t k) {
    while (!Run(s, k, enter).scalar<bool>()) ++s;
    for (int sent = 0; sent < 2; ++sent) Run(s, k, push);  // as after a lost connection
    return Run(s, k, take[size_t(k)]).scalar<int64_t>();
  }

  Graph graph;
  Output gate, sums, step, worker, enter;
  const Node* push;
  const Node* leave;
  Output join, admitted, sum;
  std::vector<const Node*> put;
  std::vector<Output> take;
  std::optional<Session> session;
};

// The last worker leaves for some steps and comes back to the one that is current then.
TEST_F(TablesTest, SynchronousWorkersComeAndGo) {
  constexpr int64_t kSteps = 20, kLeaves = 5, kBack = 9;
  std::vector<std::thread> workers;
  std::atomic<bool> may_come_back = false, is_back = false;
  for (int64_t k = 0; k < SyncClient::kWorkers; ++k) {
    workers.emplace_back([&, k] {
      SyncClient client(server_);
      int64_t s = 0;
      while (s < kSteps) {
        s = client.TakePart(s, k);
        if (k != SyncClient::kWorkers - 1 || s != kLeaves) continue;
        client.Run(s, k, client.leave);
        may_come_back.wait(false);
        s = client.Run(s, k, client.join).scalar<int64_t>();
        is_back = true;
        is_back.notify_all();
      }
    });
  }
  SyncClient chief(server_);
  std::vector<std::vector<int64_t>> admitted;
  for (int64_t s = 0; s < kSteps; ++s) {
    if (s == kBack) {
      may_come_back = true;
      may_come_back.notify_all();
      is_back.wait(false);
    }
    const std::vector<Output> fetches = {chief.admitted, chief.sum};
    const std::vector<Tensor> taken = chief.session->Run(chief.Feeds(s, 0), fetches);
    const auto in = taken[0].values<int64_t>();
    admitted.emplace_back(in.begin(), in.end());
    float expected = 0;
    for (const int64_t k : admitted.back()) expected += float(k + 1);
    EXPECT_EQ(taken[1].scalar<float>(), expected) << "step " << s;
    for (const int64_t k : admitted.back()) chief.Run(s + 1, k, chief.put[size_t(k)]);
  }
  for (std::thread& worker : workers) worker.join();
  const std::vector<int64_t> all = {0, 1, 2}, two = {0, 1};
  EXPECT_EQ(admitted[kLeaves - 1], all);
  EXPECT_EQ(admitted[kLeaves], two);
  EXPECT_EQ(admitted[kBack - 1], two);
  EXPECT_EQ(admitted[kSteps - 1], all);
}

}  // namespace
}  // namespace tutti
