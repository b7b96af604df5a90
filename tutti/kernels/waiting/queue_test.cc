#include "tutti/graph/ops/queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "tutti/graph/ops/source.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {
namespace {

Tensor Number(int32_t value) { return Tensor::Scalar<int32_t>(value); }

class QueueTest : public ::testing::Test {
 protected:
  Output Fifo(int64_t capacity, std::string_view name = "q") {
    return FIFOQueue(graph_, {{kInt32, {}}}, {.capacity = capacity}, name);
  }
  Output Value() { return Placeholder(graph_, kInt32, {}); }
  int64_t Size(Output queue) {
    NodeUnderTest size(device_, QueueSize(queue));
    EXPECT_TRUE(size.Run({}).ok());
    return size.output().scalar<int64_t>();
  }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

TEST_F(QueueTest, FirstInFirstOutAndWaitsForRoom) {
  const Output q = Fifo(2);
  Node* const put = Enqueue(q, {Value()});
  NodeUnderTest a(device_, *put), b(device_, *put), c(device_, *put);
  NodeUnderTest take(device_, Dequeue(q)[0]);
  Tensor value = Number(1);
  ASSERT_TRUE(a.Run({{}, value}).ok());
  *value.data<int32_t>() = 100;  // the queue has a copy
  ASSERT_TRUE(b.Run({{}, Number(2)}).ok());
  c.Start({{}, Number(3)});
  EXPECT_FALSE(c.finished());
  EXPECT_EQ(Size(q), 2);
  ASSERT_TRUE(take.Run({}).ok());
  EXPECT_EQ(take.output().scalar<int32_t>(), 1);
  EXPECT_TRUE(c.Wait().ok());
  for (const int32_t expected : {2, 3}) {
    ASSERT_TRUE(take.Run({}).ok());
    EXPECT_EQ(take.output().scalar<int32_t>(), expected);
  }
  take.Start({});
  EXPECT_FALSE(take.finished());
  ASSERT_TRUE(a.Run({{}, Number(4)}).ok());
  EXPECT_TRUE(take.Wait().ok());
  EXPECT_EQ(take.output().scalar<int32_t>(), 4);
  EXPECT_EQ(take.completions(), 1);
}

TEST_F(QueueTest, ManyElementsOfSeveralComponents) {
  const Output q = FIFOQueue(graph_, {{kFloat32, {2}}, {kInt64, {}}}, {.capacity = 2}, "pairs");
  NodeUnderTest put(device_, *EnqueueMany(q, {Placeholder(graph_, kFloat32, {-1, 2}),
                                              Placeholder(graph_, kInt64, {-1})}));
  const std::vector<Output> outputs = DequeueMany(q, 3);
  EXPECT_EQ(outputs[0].shape(), (Shape{3, 2}));
  NodeUnderTest take(device_, outputs[0]);
  take.Start({{}, Tensor::Scalar<int64_t>(3)});
  put.Start({{},
             Tensor::Of<float>({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}),
             Tensor::Of<int64_t>({4}, {10, 20, 30, 40})});
  ASSERT_TRUE(put.Wait().ok());
  ASSERT_TRUE(take.Wait().ok());
  EXPECT_TRUE(take.output(0).BitwiseEquals(Tensor::Of<float>({3, 2}, {1, 2, 3, 4, 5, 6})));
  EXPECT_TRUE(take.output(1).BitwiseEquals(Tensor::Of<int64_t>({3}, {10, 20, 30})));
  EXPECT_EQ(Size(q), 1);
  ASSERT_TRUE(put.Run({{}, Tensor(kFloat32, {0, 2}), Tensor(kInt64, {0})}).ok());
  ASSERT_TRUE(take.Run({{}, Tensor::Scalar<int64_t>(0)}).ok());
  EXPECT_EQ(take.output(0).shape(), (Shape{0, 2}));
  EXPECT_EQ(MessageOf(take.Run({{}, Tensor::Scalar<int64_t>(-1)})),
            "count is -1; expected 0 or more");
  EXPECT_EQ(MessageOf(put.Run({{}, Tensor(kFloat32, {2, 2}), Tensor(kInt64, {3})})),
            "component 1 holds 3 elements, component 0 holds 2");
  EXPECT_EQ(MessageOf(put.Run({{}, Tensor(kFloat32, {2, 5}), Tensor(kInt64, {2})})),
            "component 0 of an element is [5]; queue \"pairs\" declares [2]");
}

TEST_F(QueueTest, ClosedQueues) {
  const Output q = Fifo(1);
  Node* const put_node = Enqueue(q, {Value()});
  NodeUnderTest put(device_, *put_node), pending(device_, *put_node);
  NodeUnderTest take(device_, Dequeue(q)[0]), waiting(device_, Dequeue(q)[0]);
  NodeUnderTest close(device_, *QueueClose(q));
  NodeUnderTest two(device_, DequeueMany(q, 2)[0]);
  ASSERT_TRUE(put.Run({{}, Number(1)}).ok());
  pending.Start({{}, Number(2)});
  ASSERT_TRUE(close.Run({}).ok());
  ASSERT_TRUE(close.Run({}).ok());
  EXPECT_FALSE(pending.finished()) << "what waited for room may still come in";
  const absl::Status refused = put.Run({{}, Number(3)});
  EXPECT_EQ(refused.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(MessageOf(refused), "queue \"q\" is closed");
  ASSERT_TRUE(take.Run({}).ok());
  EXPECT_TRUE(pending.Wait().ok());
  const absl::Status few = two.Run({{}, Tensor::Scalar<int64_t>(2)});
  EXPECT_EQ(few.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MessageOf(few), "queue \"q\" is closed and has 1 elements; 2 were asked for");
  ASSERT_TRUE(take.Run({}).ok());
  EXPECT_EQ(take.output().scalar<int32_t>(), 2) << "the failed take gave it back";
  const absl::Status empty = waiting.Run({});
  EXPECT_EQ(empty.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(MessageOf(empty), "queue \"q\" is closed and empty");
}

TEST_F(QueueTest, CloseEndsThoseWhoWait) {
  const Output q = Fifo(1);
  NodeUnderTest take(device_, Dequeue(q)[0]);
  take.Start({});
  ASSERT_TRUE(NodeUnderTest(device_, *QueueClose(q)).Run({}).ok());
  EXPECT_EQ(take.Wait().code(), absl::StatusCode::kOutOfRange);

  const Output full = Fifo(1, "full");
  Node* const put_node = Enqueue(full, {Value()});
  NodeUnderTest put(device_, *put_node), pending(device_, *put_node);
  ASSERT_TRUE(put.Run({{}, Number(1)}).ok());
  pending.Start({{}, Number(2)});
  ASSERT_TRUE(NodeUnderTest(device_, *QueueClose(full, {.cancel_pending = true})).Run({}).ok());
  EXPECT_EQ(MessageOf(pending.Wait()),
            "queue \"full\" was closed, and pending enqueues were cancelled");
  EXPECT_EQ(Size(full), 1);
}

TEST_F(QueueTest, CancellationLeavesTheQueueAsItWas) {
  const Output q = Fifo(4);
  NodeUnderTest put(device_, *Enqueue(q, {Value()}));
  NodeUnderTest three(device_, DequeueMany(q, 3)[0]), one(device_, Dequeue(q)[0]);
  three.Start({{}, Tensor::Scalar<int64_t>(3)});
  one.Start({});
  ASSERT_TRUE(put.Run({{}, Number(1)}).ok());
  ASSERT_TRUE(put.Run({{}, Number(2)}).ok());
  EXPECT_FALSE(one.finished()) << "it stands behind the first";
  three.Cancel(absl::DeadlineExceededError("too slow"));
  EXPECT_EQ(three.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(three.completions(), 1);
  ASSERT_TRUE(one.Wait().ok());
  EXPECT_EQ(one.output().scalar<int32_t>(), 1) << "elements went back in order";
  EXPECT_EQ(Size(q), 1);
  one.Cancel();
  EXPECT_EQ(one.completions(), 1);
}

TEST_F(QueueTest, ShufflesWithASeedAndKeepsAReserve) {
  std::vector<int32_t> first_order;
  for (const char* name : {"s1", "s2"}) {
    const Output q = RandomShuffleQueue(
        graph_, {{kInt32, {}}}, {.capacity = 100, .min_after_dequeue = 10, .seed = 7}, name);
    NodeUnderTest put(device_, *EnqueueMany(q, {Placeholder(graph_, kInt32, {-1})}));
    Tensor numbers(kInt32, {100});
    for (int32_t i = 0; i < 100; ++i) numbers.data<int32_t>()[i] = i;
    ASSERT_TRUE(put.Run({{}, numbers}).ok());
    NodeUnderTest take(device_, DequeueMany(q, 90)[0]), rest(device_, DequeueMany(q, 10)[0]);
    ASSERT_TRUE(take.Run({{}, Tensor::Scalar<int64_t>(90)}).ok());
    rest.Start({{}, Tensor::Scalar<int64_t>(10)});
    EXPECT_FALSE(rest.finished()) << "ten must stay while the queue is open";
    ASSERT_TRUE(NodeUnderTest(device_, *QueueClose(q)).Run({}).ok());
    ASSERT_TRUE(rest.Wait().ok());
    std::vector<int32_t> order;
    for (const auto* node : {&take, &rest}) {
      for (const int32_t v : node->output().values<int32_t>()) order.push_back(v);
    }
    EXPECT_EQ(std::set<int32_t>(order.begin(), order.end()).size(), 100u);
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    if (first_order.empty()) first_order = order;
    EXPECT_EQ(order, first_order);
  }
}

TEST_F(QueueTest, MistakesAreFoundWhenTheNodeIsMade) {
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  const Output q = Fifo(3);
  EXPECT_NE(message([&] {
              Enqueue(q, {Placeholder(graph_, kFloat32, {})});
            }).find("components[0] is float32 []; expected int32"),
            std::string::npos);
  EXPECT_NE(message([&] {
              Enqueue(q, {Value(), Value()});
            }).find("2 components given; the queue's elements have 1"),
            std::string::npos);
  EXPECT_NE(message([&] {
              Enqueue(Value(), {Value()});
            }).find("queue must be a FIFOQueue or RandomShuffleQueue, got Placeholder"),
            std::string::npos);
  EXPECT_NE(message([&] { Fifo(0, "zero"); }).find("capacity is 0; expected at least 1"),
            std::string::npos);
  EXPECT_NE(message([&] { FIFOQueue(graph_, {}); }).find("at least one component"),
            std::string::npos);
  EXPECT_NE(message([&] {
              RandomShuffleQueue(graph_, {{kInt32, {}}}, {.capacity = 5, .min_after_dequeue = 5});
            }).find("min_after_dequeue is 5; expected 0 to 4"),
            std::string::npos);
  // The same name with another declaration, in another graph.
  ASSERT_TRUE(NodeUnderTest(device_, QueueSize(q)).Run({}).ok());
  Graph other;
  const Output again = FIFOQueue(other, {{kInt64, {}}}, {.capacity = 3}, "q");
  EXPECT_EQ(NodeUnderTest(device_, QueueSize(again)).Run({}).code(),
            absl::StatusCode::kFailedPrecondition);
}

// Producers, consumers and cancellers at once: every element comes out exactly once, every node
// finishes exactly once.
TEST_F(QueueTest, ManyThreads) {
  constexpr int kProducers = 3, kConsumers = 3, kEach = 300;
  const Output q = Fifo(4);
  Node* const put_node = Enqueue(q, {Value()});
  const Output take_node = Dequeue(q)[0];
  std::vector<std::unique_ptr<NodeUnderTest>> nodes;
  for (int i = 0; i < kProducers; ++i) {
    nodes.push_back(std::make_unique<NodeUnderTest>(device_, *put_node));
  }
  for (int i = 0; i < kConsumers; ++i) {
    nodes.push_back(std::make_unique<NodeUnderTest>(device_, take_node));
  }
  std::array<std::atomic<int>, kProducers* kEach> seen = {};
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < kEach; ++i) {
        if (!nodes[p]->Run({{}, Number(p * kEach + i)}).ok()) ++wrong;
      }
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&, c] {
      NodeUnderTest& take = *nodes[kProducers + c];
      for (int round = 0;; ++round) {
        take.Start({});
        if (round % 7 == 0) take.Cancel();
        const absl::Status status = take.Wait();
        if (take.completions() != 1) ++wrong;
        if (status.ok()) {
          ++seen[take.output().scalar<int32_t>()];
        } else if (status.code() == absl::StatusCode::kOutOfRange) {
          return;
        } else if (status.code() != absl::StatusCode::kCancelled) {
          ++wrong;
        }
      }
    });
  }
  for (int p = 0; p < kProducers; ++p) threads[p].join();
  ASSERT_TRUE(NodeUnderTest(device_, *QueueClose(q)).Run({}).ok());
  for (size_t i = kProducers; i < threads.size(); ++i) threads[i].join();
  EXPECT_EQ(wrong, 0);
  for (const auto& count : seen) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace tutti
