#include "tutti/collective/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

std::vector<float> Ones(int64_t count, float value = 1) {
  return std::vector<float>(static_cast<size_t>(count), value);
}

TEST(Communicator, OneRankIsEnough) {
  RanksUnderTest ranks(1);
  std::vector<float> data = {1, 2, 3}, output(3);
  Group& world = ranks[0].world();
  EXPECT_TRUE(
      world.AllReduce(data.data(), 3, kFloat32, {.reduction = Reduction::kMean}).Wait().ok());
  EXPECT_TRUE(world.AllToAll(data.data(), output.data(), 3, kFloat32).Wait().ok());
  EXPECT_EQ(output, (std::vector<float>{1, 2, 3}));
  EXPECT_TRUE(world.Barrier().Wait().ok());
}

TEST(Communicator, ManyInFlightWaitedForInAnyOrder) {
  RanksUnderTest ranks(4);
  ranks.Run([](Communicator& communicator) {
    constexpr int kOperations = 50;
    std::vector<std::vector<float>> data;
    for (int i = 0; i < kOperations; ++i) {
      data.push_back(Ones(1 + i * 997, static_cast<float>(i)));
    }
    std::vector<Handle> handles(kOperations);
    // Every rank starts them in an order of its own: keys and steps match them.
    for (int j = 0; j < kOperations; ++j) {
      const int i = (j * 7 + communicator.rank() * 13) % kOperations;
      const std::string key = "bucket_" + std::to_string(i % 5);
      handles[i] =
          communicator.world().AllReduce(data[i].data(), static_cast<int64_t>(data[i].size()),
                                         kFloat32, {.key = key, .step = i, .priority = i % 3});
    }
    for (int i = kOperations - 1; i >= 0; --i) {
      ASSERT_TRUE(handles[i].Wait().ok()) << handles[i].Wait();
      EXPECT_EQ(data[i], Ones(static_cast<int64_t>(data[i].size()), 4.0f * static_cast<float>(i)));
    }
  });
}

// Rank 0 waits twice at the same time: while it has something else to do, and while it has nothing.
TEST(Communicator, WaitingCountsOnceAndOnlyWithNothingElseToDo) {
  RanksUnderTest ranks(2);
  std::vector<float> data(4, 1), others(4, 1);
  const auto start = [](Communicator& communicator, float* at, std::string_view key) {
    return communicator.world().AllReduce(at, 2, kFloat32, {.key = key});
  };
  const auto finish = [&](const Handle& handle) {
    while (!handle.done()) {
      ranks[0].Poll();
      ranks[1].Poll();
    }
  };
  const auto wait = [&] {
    const int64_t until = NowNanos() + 2'000'000;
    while (NowNanos() < until) ranks[0].Poll();
  };
  for (const bool idle : {false, true}) {
    const Handle a = start(ranks[0], data.data(), "a"), b = start(ranks[0], data.data() + 2, "b");
    if (idle) ranks[0].SetIdle(true);
    wait();
    start(ranks[1], others.data(), "a");
    finish(a);
    start(ranks[1], others.data() + 2, "b");
    finish(b);
    if (idle) ranks[0].SetIdle(false);
    const CommunicatorStats stats = ranks[0].stats();
    if (idle) {
      EXPECT_GE(stats.waited_nanos[1], 2'000'000);
      EXPECT_LE(stats.waited_nanos[1], stats.exposed_nanos);
    } else {
      EXPECT_EQ(stats.waited_nanos[1], 0);
      EXPECT_EQ(stats.exposed_nanos, 0);
    }
  }
}

TEST(Communicator, SeveralThreadsMayWait) {
  RanksUnderTest ranks(2);
  ranks.Run([](Communicator& communicator) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&communicator, t] {
        const std::string key = "thread " + std::to_string(t);
        for (int i = 0; i < 200; ++i) {
          std::vector<float> data = Ones(100 + t * 5000);
          ASSERT_TRUE(
              communicator.world()
                  .AllReduce(data.data(), static_cast<int64_t>(data.size()), kFloat32, {.key = key})
                  .Wait()
                  .ok());
          ASSERT_EQ(data[0], 2);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Communicator, GroupsHaveRanksOfTheirOwn) {
  RanksUnderTest ranks(5);
  ranks.Run([](Communicator& communicator) {
    // {4, 2, 0} and {3, 1}, under one name: they never meet.
    const bool even = communicator.rank() % 2 == 0;
    const std::vector<int> members = even ? std::vector<int>{4, 2, 0} : std::vector<int>{3, 1};
    auto group = communicator.MakeGroup("parity", members);
    ASSERT_TRUE(group.ok()) << group.status();
    EXPECT_EQ((*group)->size(), even ? 3 : 2);
    EXPECT_EQ(members[(*group)->rank()], communicator.rank());
    std::vector<int64_t> data((*group)->size(), -1);
    data[(*group)->rank()] = communicator.rank();
    ASSERT_TRUE((*group)->AllGather(data.data(), 1, kInt64).Wait().ok());
    EXPECT_EQ(data, std::vector<int64_t>(members.begin(), members.end()));
    int32_t sum = communicator.rank();
    ASSERT_TRUE(communicator.world().AllReduce(&sum, 1, kInt32).Wait().ok());
    EXPECT_EQ(sum, 10);
  });
  const std::vector<int> other = {0, 1};
  EXPECT_THAT(std::string(MessageOf(ranks[0].MakeGroup("parity", other).status())),
              HasSubstr("a name names one group"));
  const std::vector<int> without = {1, 2}, twice = {0, 0}, unknown = {0, 9};
  EXPECT_FALSE(ranks[0].MakeGroup("a", without).ok());
  EXPECT_FALSE(ranks[0].MakeGroup("b", twice).ok());
  EXPECT_FALSE(ranks[0].MakeGroup("c", unknown).ok());
}

TEST(Communicator, ChunksOfDifferentSizes) {
  RanksUnderTest ranks(4);
  ranks.Run([](Communicator& communicator) {
    const std::vector<int64_t> counts = {3, 0, 1000, 7};
    for (const char* algorithm : {"", "ring", "exchange", "direct"}) {
      std::vector<int32_t> data(1010, -1);
      const int64_t begins[] = {0, 3, 3, 1003, 1010};
      const int r = communicator.rank();
      for (int64_t i = begins[r]; i < begins[r + 1]; ++i) data[i] = static_cast<int32_t>(i);
      const absl::Status status =
          communicator.world()
              .AllGatherV(data.data(), counts, kInt32, {.algorithm = algorithm})
              .Wait();
      ASSERT_TRUE(status.ok()) << algorithm << ": " << status;
      for (int32_t i = 0; i < 1010; ++i) ASSERT_EQ(data[i], i) << algorithm;
    }
  });
}

TEST(Communicator, WhatTravelsRoundedIsTheSameEverywhere) {
  for (Wire wire : {Wire::kBFloat16, Wire::kFloat16}) {
    for (const char* algorithm :
         {"ring", "halving-doubling", "tree", "exchange", "central:2", "direct"}) {
      RanksUnderTest ranks(3);
      std::vector<std::vector<float>> results(3);
      ranks.Run([&](Communicator& communicator) {
        std::vector<float> data(5000);
        for (size_t i = 0; i < data.size(); ++i) {
          data[i] =
              std::sin(static_cast<float>(i + 1) * static_cast<float>(communicator.rank() + 1));
        }
        const absl::Status status =
            communicator.world()
                .AllReduce(data.data(), 5000, kFloat32, {.algorithm = algorithm, .wire = wire})
                .Wait();
        ASSERT_TRUE(status.ok()) << status;
        results[communicator.rank()] = data;
      });
      for (size_t i = 0; i < 5000; ++i) {
        double expected = 0;
        for (int r = 1; r <= 3; ++r) {
          expected += std::sin(static_cast<float>(i + 1) * static_cast<float>(r));
        }
        ASSERT_NEAR(results[0][i], expected, wire == Wire::kBFloat16 ? 0.05 : 0.01) << algorithm;
      }
      EXPECT_EQ(results[1], results[0]) << algorithm;
      EXPECT_EQ(results[2], results[0]) << algorithm;
      // In memory nothing travels, so nothing is rounded.
      std::vector<float> rounded = results[0];
      std::vector<uint16_t> packed(rounded.size());
      Pack(wire, rounded.data(), packed.data(), 5000);
      Unpack(wire, packed.data(), rounded.data(), 5000);
      EXPECT_EQ(results[0] == rounded, algorithm != std::string("direct")) << algorithm;
    }
  }
}

// One thread takes turns between two ranks: what is done first is known.
TEST(Communicator, PollDrivesAndPriorityDecides) {
  RanksUnderTest ranks(2);
  std::vector<std::vector<float>> low, high;
  std::vector<std::string> order;
  for (int r = 0; r < 2; ++r) {
    low.push_back(Ones(2'000'000));
    high.push_back(Ones(2'000'000));
  }
  EXPECT_FALSE(ranks[0].Poll());
  std::vector<Handle> handles;
  for (int r = 0; r < 2; ++r) {
    Group& world = ranks[r].world();
    handles.push_back(world.AllReduce(low[r].data(), 2'000'000, kFloat32, {.key = "low"}));
    handles.back().OnDone([&](const absl::Status&) { order.push_back("low"); });
    handles.push_back(
        world.AllReduce(high[r].data(), 2'000'000, kFloat32, {.key = "high", .priority = 1}));
    handles.back().OnDone([&](const absl::Status&) { order.push_back("high"); });
  }
  while (order.size() < 4) {
    ranks[0].Poll();
    ranks[1].Poll();
  }
  EXPECT_EQ(order, (std::vector<std::string>{"high", "high", "low", "low"}));
  for (const Handle& handle : handles) EXPECT_TRUE(handle.done());
  EXPECT_EQ(low[0], Ones(2'000'000, 2));
  EXPECT_EQ(high[1], Ones(2'000'000, 2));
}

TEST(Communicator, CallbackOfAnOperationThatIsDone) {
  RanksUnderTest ranks(1);
  std::vector<float> data = Ones(4);
  bool called = false;
  const Handle handle = ranks[0].world().AllReduce(data.data(), 4, kFloat32);
  handle.OnDone([&](const absl::Status& status) { called = status.ok(); });
  EXPECT_TRUE(called);
  EXPECT_TRUE(Handle().done());
  EXPECT_FALSE(Handle().Wait().ok());
}

TEST(Communicator, HandlesOutliveIt) {
  std::optional<RanksUnderTest> ranks(2);
  std::vector<float> data = Ones(100);
  const Handle open = (*ranks)[0].world().AllReduce(data.data(), 100, kFloat32);
  EXPECT_FALSE(open.done());
  ranks.reset();
  EXPECT_TRUE(open.done());
  EXPECT_EQ(open.Wait().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tutti::collective
