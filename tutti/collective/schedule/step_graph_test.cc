#include "tutti/collective/schedule/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <span>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/schedule/verify.h"

namespace tutti::collective {
namespace {

using ::testing::ElementsAre;

Schedule OneRank(std::vector<Step> steps, int pieces) {
  Schedule schedule;
  schedule.algorithm = "test";
  schedule.chunks = pieces;
  schedule.steps = {std::move(steps)};
  schedule.sets = {{0}};
  return schedule;
}

TEST(StepGraph, MatchesMessagesInOrder) {
  Schedule schedule;
  schedule.algorithm = "test";
  schedule.ranks = 2;
  schedule.chunks = 2;
  schedule.steps = {{{.kind = StepKind::kSend, .peer = 1, .piece = 0},
                     {.kind = StepKind::kSignal, .peer = 1},
                     {.kind = StepKind::kSend, .peer = 1, .piece = 1}},
                    {{.kind = StepKind::kReceive, .peer = 0, .piece = 0},
                     {.kind = StepKind::kReceive, .peer = 0, .piece = 1},
                     {.kind = StepKind::kAwait, .peer = 0}}};
  const absl::StatusOr<StepGraph> graph = StepGraph::Make(schedule);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->node(0).other, 3);
  EXPECT_EQ(graph->node(2).other, 4);
  EXPECT_EQ(graph->node(1).other, 5);
  EXPECT_EQ(graph->node(4).other, 2);
  // The signal follows the first send; nothing else waits.
  EXPECT_THAT(graph->CountRounds(false).of, ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_THAT(graph->CountRounds(true).of, ElementsAre(1, 1, 1, 1, 1, 2));
}

TEST(StepGraph, NamesAMessageWithoutAnOtherEnd) {
  Schedule schedule;
  schedule.algorithm = "test";
  schedule.ranks = 2;
  schedule.steps = {{}, {{.kind = StepKind::kReceive, .peer = 0, .piece = 0}}};
  EXPECT_EQ(MessageOf(StepGraph::Make(schedule).status()),
            "schedule test: step 0 of rank 1 (receive with rank 0) has no other end");
}

TEST(StepGraph, NoStepOfADeadlockRuns) {
  Schedule schedule;
  schedule.ranks = 2;
  schedule.steps = {{{.kind = StepKind::kReceive, .peer = 1, .piece = 0},
                     {.kind = StepKind::kSend, .peer = 1, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 0, .piece = 0},
                     {.kind = StepKind::kSend, .peer = 0, .piece = 0}}};
  const absl::StatusOr<StepGraph> graph = StepGraph::Make(schedule);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_TRUE(graph->CountRounds(true).order.empty());
}

TEST(StepGraph, RoundsAreThoseOfTheWorkCounted) {
  const int hosts[] = {0, 0, 0, 1, 1, 2, 2, 2};
  for (const Algorithm& algorithm : Algorithms()) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      for (const int segments : {1, 3}) {
        const absl::StatusOr<Schedule> schedule =
            algorithm.make({.ranks = ranks,
                            .segments = segments,
                            .hosts = std::span(hosts).first(static_cast<size_t>(ranks))});
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        const absl::StatusOr<StepGraph> graph = StepGraph::Make(*schedule);
        ASSERT_TRUE(graph.ok()) << graph.status();
        const StepGraph::Rounds rounds = graph->CountRounds(true);
        EXPECT_EQ(static_cast<int32_t>(rounds.order.size()), graph->size());
        int64_t last = 0;
        for (const int32_t round : rounds.of) last = std::max<int64_t>(last, round);
        EXPECT_EQ(last, CountWork(*schedule).rounds) << algorithm.name << " " << ranks;
      }
    }
  }
}

// Whatever MustWait says of two steps must follow from the graph, and nothing else may.
TEST(StepGraph, WaitsExactlyAsMustWaitSays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  constexpr int kPieces = 4;
  for (int round = 0; round < 200; ++round) {
    std::vector<Step> steps;
    for (int i = 0; i < 20; ++i) {
      const auto piece = static_cast<int32_t>(random() % kPieces);
      const auto other = static_cast<int32_t>((piece + 1 + random() % (kPieces - 1)) % kPieces);
      // Signals to oneself keep the list in one rank; each is taken by an await right behind it.
      switch (random() % 7) {
        case 0:
          steps.push_back({.kind = StepKind::kSignal, .peer = 0});
          steps.push_back({.kind = StepKind::kAwait, .peer = 0});
          break;
        case 1:
          steps.push_back({.kind = StepKind::kStoreTo, .piece = piece, .set = 0});
          break;
        case 2:
          steps.push_back({.kind = StepKind::kReduceFrom, .piece = piece, .set = 0});
          break;
        case 3:
          steps.push_back({.kind = StepKind::kReduceToAll, .piece = piece, .set = 0});
          break;
        case 4:
          steps.push_back({.kind = StepKind::kReduce, .piece = piece, .source = other});
          break;
        default:
          steps.push_back({.kind = StepKind::kCopy, .piece = piece, .source = other});
      }
    }
    const absl::StatusOr<StepGraph> graph = StepGraph::Make(OneRank(steps, kPieces));
    ASSERT_TRUE(graph.ok()) << graph.status();
    const size_t n = steps.size();
    std::vector<std::vector<bool>> expected(n, std::vector<bool>(n)), got = expected;
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = a + 1; b < n; ++b) expected[a][b] = MustWait(steps[a], steps[b]);
      for (const int32_t b : graph->Next(static_cast<int32_t>(a))) {
        got[a][static_cast<size_t>(b)] = true;
      }
    }
    for (auto* matrix : {&expected, &got}) {
      for (size_t b = 0; b < n; ++b) {
        for (size_t a = 0; a < n; ++a) {
          for (size_t c = 0; c < n; ++c) {
            if ((*matrix)[a][b] && (*matrix)[b][c]) (*matrix)[a][c] = true;
          }
        }
      }
    }
    ASSERT_EQ(got, expected);
  }
}

}  // namespace
}  // namespace tutti::collective
