#include "tutti/collective/operation/rank_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tutti/collective/algorithms/algorithm.h"

namespace tutti::collective {
namespace {

// closure[j][i]: step j waits for step i, directly or not.
using Closure = std::vector<std::vector<bool>>;

Closure Closed(Closure waits) {
  for (size_t j = 0; j < waits.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      if (!waits[j][i]) continue;
      for (size_t k = 0; k < i; ++k) {
        if (waits[i][k]) waits[j][k] = true;
      }
    }
  }
  return waits;
}

TEST(RankProgram, EdgesAreThoseOfTheOrderRules) {
  for (const Algorithm& algorithm : Algorithms()) {
    for (int operation = 1; operation <= 9; ++operation) {
      if (!algorithm.supports(static_cast<Operation>(operation))) continue;
      for (int ranks : {1, 2, 3, 5, 8}) {
        const auto schedule = algorithm.make({.operation = static_cast<Operation>(operation),
                                              .ranks = ranks,
                                              .segments = 3,
                                              .hosts = {}});
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        for (int rank = 0; rank < ranks; ++rank) {
          const auto& list = schedule->steps[rank];
          const auto program = MakeProgram(*schedule, rank);
          Closure expected(list.size(), std::vector<bool>(list.size(), false));
          Closure got = expected;
          std::vector<uint32_t> waits(list.size(), 0);
          for (size_t j = 0; j < list.size(); ++j) {
            for (size_t i = 0; i < j; ++i) expected[j][i] = MustWait(list[i], list[j]);
            const ProgramStep& step = program->steps[j];
            for (uint32_t d = 0; d < step.dependents; ++d) {
              const uint32_t later = program->dependents[step.first_dependent + d];
              got[later][j] = true;
              ++waits[later];
            }
          }
          for (size_t j = 0; j < list.size(); ++j) EXPECT_EQ(program->steps[j].waits, waits[j]);
          EXPECT_EQ(Closed(got), Closed(expected))
              << algorithm.name << " " << NameOf(schedule->operation) << ", rank " << rank << " of "
              << ranks;
        }
      }
    }
  }
}

TEST(RankProgram, DirectKeepsItsOwnChunkToItself) {
  const auto schedule = (*FindAlgorithm("direct"))->make({.ranks = 3, .hosts = {}});
  ASSERT_TRUE(schedule.ok());
  const auto program = MakeProgram(*schedule, 1);
  EXPECT_TRUE(program->uses[0].peers_read && program->uses[0].peers_write);
  EXPECT_FALSE(program->uses[1].touched());
  EXPECT_TRUE(program->sums_at_once);
  EXPECT_TRUE(program->windowed);
  ASSERT_EQ(program->peers.size(), 2u);
  EXPECT_TRUE(program->peers[0].signalled && program->peers[1].signalled);
}

TEST(RankProgram, RingHasTwoPeersAndMayRound) {
  const auto schedule = (*FindAlgorithm("ring"))->make({.ranks = 5, .segments = 2, .hosts = {}});
  ASSERT_TRUE(schedule.ok());
  const auto program = MakeProgram(*schedule, 0);
  ASSERT_EQ(program->peers.size(), 2u);
  EXPECT_EQ(program->peers[0].rank, 1);
  EXPECT_EQ(program->peers[1].rank, 4);
  EXPECT_FALSE(program->sums_at_once);
  EXPECT_TRUE(program->may_round);
  EXPECT_FALSE(program->touches_memory);
}

std::vector<int32_t> PiggybacksOf(const char* algorithm, int ranks, int rank) {
  const auto schedule = (*FindAlgorithm(algorithm))->make({.ranks = ranks, .hosts = {}});
  const auto program = MakeProgram(*schedule, rank);
  std::vector<int32_t> piggybacks;
  for (const RankProgram::Peer& peer : program->peers) {
    piggybacks.push_back(peer.piggyback);
    if (peer.piggyback < 0) continue;
    const ProgramStep& step = program->steps[peer.piggyback];
    EXPECT_TRUE(step.piggybacked && step.kind == StepKind::kSend && step.peer == peer.rank);
    EXPECT_TRUE(step.message == 0 && step.waits == 0);
  }
  const auto piggybacked = [](const ProgramStep& step) { return step.piggybacked; };
  EXPECT_EQ(std::ranges::count_if(program->steps, piggybacked),
            std::ranges::count_if(piggybacks, [](int32_t piggyback) { return piggyback >= 0; }));
  return piggybacks;
}

TEST(RankProgram, WhatIsSentFirstAndAtOnceRides) {
  EXPECT_THAT(PiggybacksOf("exchange", 3, 1), ::testing::Each(::testing::Ge(0)));
  // A ring sends one way.
  EXPECT_THAT(PiggybacksOf("ring", 5, 0), ::testing::Contains(-1).Times(1));
  EXPECT_THAT(PiggybacksOf("ring", 5, 0), ::testing::Contains(::testing::Ge(0)).Times(1));
  EXPECT_THAT(PiggybacksOf("direct", 3, 1), ::testing::Each(-1));
}

// Only where everybody sends all it has to everybody at once: in a central all-reduce of two ranks
// each sends once to the other too, but one of them sends the sum.
TEST(RankProgram, OnlyAnExchangeIsOneRound) {
  for (const int ranks : {2, 3, 5}) {
    for (const Algorithm& algorithm : Algorithms()) {
      const auto schedule = algorithm.make({.ranks = ranks, .hosts = {}});
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      EXPECT_EQ(MakeProgram(*schedule, 0)->one_round, algorithm.name == "exchange")
          << algorithm.name << ", " << ranks << " ranks";
    }
  }
  const auto gather = (*FindAlgorithm("exchange"))
                          ->make({.operation = Operation::kAllGather, .ranks = 2, .hosts = {}});
  ASSERT_TRUE(gather.ok());
  EXPECT_FALSE(MakeProgram(*gather, 0)->one_round);
}

// Whoever asks for rounded journeys gets them, from every algorithm that sends anything.
TEST(RankProgram, WhateverTravelsMayBeRounded) {
  for (const Algorithm& algorithm : Algorithms()) {
    for (int operation = 1; operation <= 9; ++operation) {
      if (!algorithm.supports(static_cast<Operation>(operation))) continue;
      for (const std::vector<int>& hosts :
           {std::vector<int>{0, 0}, {0, 1}, {0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2, 3, 4, 5, 6}}) {
        const auto schedule = algorithm.make({.operation = static_cast<Operation>(operation),
                                              .ranks = static_cast<int>(hosts.size()),
                                              .segments = 2,
                                              .hosts = hosts});
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        bool sends = false;
        for (const auto& list : schedule->steps) {
          for (const Step& step : list) sends |= step.kind == StepKind::kSend;
        }
        EXPECT_EQ(MakeProgram(*schedule, 1)->may_round, sends)
            << algorithm.name << " " << NameOf(schedule->operation) << ", " << hosts.size()
            << " ranks";
      }
    }
  }
}

TEST(RankProgram, ExchangeRoundsWhatItSendsAndSums) {
  const auto sum = (*FindAlgorithm("exchange"))->make({.ranks = 3, .hosts = {}});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(MakeProgram(*sum, 1)->rounds_own, std::vector<int32_t>{0});
  const auto scatter =
      (*FindAlgorithm("exchange"))
          ->make({.operation = Operation::kReduceScatter, .ranks = 3, .hosts = {}});
  ASSERT_TRUE(scatter.ok());
  EXPECT_TRUE(MakeProgram(*scatter, 1)->rounds_own.empty());
}

}  // namespace
}  // namespace tutti::collective
