#include "tutti/collective/tuning/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

// A host as it is measured on a quiet machine, and a network of 1 Gbit/s.
constexpr LinkFigures kFigures = {.memory_latency = 0.4e-6,
                                  .memory_byte = 0.1e-9,
                                  .memory_pass = 0.03e-9,
                                  .host_memory_pass = 0.03e-9,
                                  .socket_latency = 50e-6,
                                  .socket_byte = 8e-9,
                                  .reduce_byte = 0.03e-9,
                                  .large_reduce_byte = 0.1e-9};

std::string Chosen(const std::vector<int>& hosts, Operation operation, int64_t bytes) {
  return TunedSelector(kFigures, hosts).Choose(operation, bytes).algorithm.Name();
}

TEST(Tuner, ExchangesTheSmallAndSharesTheLargeInMemory) {
  EXPECT_EQ(Chosen({0, 0}, Operation::kAllReduce, 4), "exchange");
  EXPECT_EQ(Chosen({0, 0}, Operation::kAllReduce, 1024), "exchange");
  EXPECT_EQ(Chosen({0, 0}, Operation::kAllReduce, 64 << 10), "direct");
  EXPECT_EQ(Chosen({0, 0, 0, 0}, Operation::kAllReduce, 64 << 20), "direct");
}

TEST(Tuner, SendsLargeDataRoundTheRingBetweenHosts) {
  EXPECT_EQ(Chosen({0, 1, 2, 3}, Operation::kAllReduce, 64 << 20), "ring");
  EXPECT_NE(Chosen({0, 1, 2, 3}, Operation::kAllReduce, 64), "ring");
}

// Both move as many bytes. The exchange saves a latency, and adds up everything on both ranks.
TEST(Tuner, SharesTheSumsOfTwoHostsWhereTheyCostMoreThanARound) {
  LinkFigures loopback = kFigures;
  loopback.socket_latency = 20e-6;
  loopback.socket_byte = 0.5e-9;
  const TunedSelector selector(loopback, std::vector<int>{0, 1});
  const auto chosen = [&](int64_t bytes) {
    return selector.Choose(Operation::kAllReduce, bytes).algorithm.Name();
  };
  EXPECT_EQ(chosen(64 << 10), "exchange");
  EXPECT_EQ(chosen(1 << 20), "ring");
  EXPECT_EQ(chosen(4 << 20), "ring");
  // On a slow link neither matters. The ring needs no memory of its own.
  EXPECT_EQ(Chosen({0, 1}, Operation::kAllReduce, 1 << 20), "ring");
}

TEST(Tuner, GoesThroughTheHostWhereThereAreSeveralRanksOnEach) {
  EXPECT_EQ(Chosen({0, 0, 1, 1}, Operation::kAllReduce, 64 << 20), "hierarchical");
}

TEST(Tuner, ChoosesSomethingForEveryOperationAndSize) {
  for (const std::vector<int>& hosts :
       {std::vector<int>{0}, {0, 0, 0}, {0, 1, 2}, {0, 0, 1}, std::vector<int>(40, 0)}) {
    const TunedSelector selector(kFigures, hosts);
    for (int operation = 1; operation <= 9; ++operation) {
      for (int64_t bytes : {0L, 1L, 1000L, 1L << 20, 1L << 33}) {
        const Choice choice = selector.Choose(static_cast<Operation>(operation), bytes);
        EXPECT_TRUE(
            CheckChoice(choice.algorithm, static_cast<Operation>(operation), ShapeOf(hosts)).ok());
        EXPECT_GE(choice.segments, 1);
      }
    }
  }
}

TEST(Tuner, PredictsWhatTheLinksTake) {
  const TunedSelector between(kFigures, std::vector<int>{0, 1, 2, 3});
  const auto small = between.Predict(Operation::kAllReduce, 64);
  const auto large = between.Predict(Operation::kAllReduce, 64 << 20);
  ASSERT_TRUE(small && large);
  EXPECT_EQ(large->algorithm, "ring");
  // 2(N-1)/N K/B, the latency of six rounds beside it.
  const double bytes = 1.5 * (64 << 20) * kFigures.socket_byte;
  EXPECT_GT(large->seconds, bytes);
  EXPECT_LT(large->seconds, 1.2 * bytes);
  EXPECT_GT(small->seconds, kFigures.socket_latency);
  EXPECT_FALSE(TunedSelector(kFigures, std::vector<int>{0}).Predict(Operation::kAllReduce, 64));
  EXPECT_FALSE(DefaultSelector({.ranks = 2, .hosts = 1}).Predict(Operation::kAllReduce, 64));
}

TEST(Tuner, Explains) {
  const std::string text =
      TunedSelector(kFigures, std::vector<int>{0, 1, 2, 3}).Explain(Operation::kAllReduce, 1 << 20);
  EXPECT_THAT(text, HasSubstr("all-reduce of 1.049 MB, 4 ranks on 4 hosts: "));
  EXPECT_THAT(text, HasSubstr("halving-doubling"));
  EXPECT_THAT(text, HasSubstr("ms predicted"));
}

// The choices are made while others are explained: every thread gets what one alone would.
TEST(Tuner, ExplainsToManyAtOnce) {
  const std::vector<int> hosts = {0, 1, 2, 3};
  constexpr int kSizes = 24;
  const auto explain = [](const TunedSelector& selector, int bits) {
    return selector.Explain(Operation::kAllReduce, int64_t{1} << bits);
  };
  std::vector<std::string> expected;
  for (int bits = 0; bits < kSizes; ++bits) {
    expected.push_back(explain(TunedSelector(kFigures, hosts), bits));
  }
  const TunedSelector shared(kFigures, hosts);
  std::vector<std::vector<std::string>> got(4, std::vector<std::string>(kSizes));
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < got.size(); ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kSizes; ++i) {
          const int bits = t % 2 == 0 ? i : kSizes - 1 - i;
          got[t][static_cast<size_t>(bits)] = explain(shared, bits);
        }
      });
    }
  }
  for (const auto& texts : got) EXPECT_EQ(texts, expected);
}

TEST(Tuner, KeepsFiguresForTheSameRanksAtTheSamePlacesOnly) {
  const std::string here = "boot host 10.0.0.1 2", there = "boot host 10.0.0.2 2";
  const auto name = [](std::vector<std::string> places, std::string_view transport) {
    return CacheName("1.0", places, transport);
  };
  const std::string kept = name({here, there}, "tcp");
  EXPECT_EQ(kept, name({here, there}, "tcp"));
  const std::string places[] = {here, there};
  const std::set<std::string> names = {kept,
                                       CacheName("1.1", places, "tcp"),
                                       name({here, there}, "auto"),
                                       name({here}, "tcp"),
                                       name({here, here}, "tcp"),
                                       name({there, here}, "tcp"),
                                       name({here, there, there}, "tcp"),
                                       name({here, "boot2 host 10.0.0.2 2"}, "tcp"),
                                       name({here, "boot host 10.0.0.2 4"}, "tcp"),
                                       name({here + " " + there}, "tcp")};
  EXPECT_EQ(names.size(), 10u);
}

TEST(LinkFigures, TextComesBack) {
  const auto back = ParseLinkFigures(ToText(kFigures));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, kFigures);
  for (const char* text :
       {"", "links", "links 1 2 3 4 5 6 7", "links 1 2 3 4 5 6 7 x", "links 1 2 3 4 5 6 7 -8",
        "links 1 2 3 4 5 6 7 8 9", "links 1 2 3 4 5 6 7 nan"}) {
    EXPECT_FALSE(ParseLinkFigures(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tutti::collective
