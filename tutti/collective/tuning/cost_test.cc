#include "tutti/collective/tuning/cost.h"

#include <gtest/gtest.h>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {
namespace {

using topology::FabricCosts;
using topology::LinkCosts;
using topology::TwoLevelCosts;
using topology::UniformCosts;

constexpr double kBandwidth = 1e9;
constexpr double kLatency = 5e-6;
constexpr int64_t kBytes = 1'200'000'000;

Schedule Made(std::string_view algorithm, const Request& request) {
  absl::StatusOr<const Algorithm*> found = FindAlgorithm(algorithm);
  EXPECT_TRUE(found.ok()) << found.status();
  absl::StatusOr<Schedule> schedule = (*found)->make(request);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *std::move(schedule);
}

Prediction Predicted(const Schedule& schedule, const LinkCosts& costs, int64_t bytes = kBytes) {
  absl::StatusOr<Prediction> prediction = PredictCost(schedule, costs, bytes);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return *std::move(prediction);
}

TEST(Cost, RingFollowsItsClosedForm) {
  for (const int n : {2, 3, 4, 10, 16}) {
    const Prediction ring =
        Predicted(Made("ring", {.ranks = n}), UniformCosts(n, {kBandwidth, kLatency}));
    const double phase = (n - 1.0) / n * kBytes / kBandwidth + (n - 1) * kLatency;
    EXPECT_NEAR(ring.seconds, 2 * phase, 1e-9) << n;
    EXPECT_NEAR(ring.reduced, phase, 1e-9) << n;
    for (const double rank : ring.ranks) EXPECT_NEAR(rank, ring.seconds, kLatency + 1e-9);
  }
}

TEST(Cost, RingAddsTheReductionUnlessSegmentsHideIt) {
  const int n = 4;
  const LinkCosts costs = UniformCosts(n, {kBandwidth, 0}, 2 * kBandwidth);
  const double transfer = 2.0 * (n - 1) / n * kBytes / kBandwidth;
  const double reduction = (n - 1.0) / n * kBytes / (2 * kBandwidth);
  EXPECT_NEAR(Predicted(Made("ring", {.ranks = n}), costs).seconds, transfer + reduction, 1e-6);
  const double cut = Predicted(Made("ring", {.ranks = n, .segments = 8}), costs).seconds;
  EXPECT_LT(cut, transfer + reduction / 4);
  EXPECT_GE(cut, transfer);
}

TEST(Cost, OneServerBesideAWorkerTakesAllButOneTwice) {
  const int n = 10;
  const Schedule schedule = Made("central", {.ranks = n});
  const Prediction server = Predicted(schedule, UniformCosts(n, {kBandwidth, 0}));
  EXPECT_NEAR(server.reduced, 10.8, 1e-6);
  EXPECT_NEAR(server.seconds, 21.6, 1e-6);
  const Prediction late = Predicted(schedule, UniformCosts(n, {kBandwidth, kLatency}));
  EXPECT_NEAR(late.reduced, 10.8 + (n - 1) * kLatency, 1e-9);
  EXPECT_NEAR(late.seconds, 21.6 + n * kLatency, 1e-9);
}

TEST(Cost, ServersOnHostsOfTheirOwnShareTheTraffic) {
  for (const int servers : {1, 2, 4}) {
    const int workers = 4;
    const int n = workers + servers;
    const Schedule schedule =
        Made("central", {.ranks = n, .variant = CentralVariant(servers, true)});
    const Prediction predicted = Predicted(schedule, UniformCosts(n, {kBandwidth, 0}));
    const double bound = 2.0 * workers * kBytes / (servers * kBandwidth);
    EXPECT_NEAR(predicted.seconds, bound, 1e-6) << servers;
  }
}

TEST(Cost, DirectIsBoundByTheMemoryThatAllShare) {
  const int n = 4;
  const std::vector<int> hosts(n, 0);
  LinkCosts costs = TwoLevelCosts(hosts, {kBandwidth, 0}, {kBandwidth, 0});
  costs.memory = 0;
  costs.host_memory = 1 / 20e9;
  EXPECT_NEAR(Predicted(Made("direct", {.ranks = n}), costs).seconds, 2.0 * n * kBytes / 20e9,
              1e-6);
}

TEST(Cost, RanksOfAHostShareItsLink) {
  // Ranks 0 and 1 send to 2 and 3 on another host: together through one link.
  Schedule schedule;
  schedule.ranks = 4;
  schedule.operation = Operation::kBroadcast;
  schedule.steps = {{{.kind = StepKind::kSend, .peer = 2, .piece = 0}},
                    {{.kind = StepKind::kSend, .peer = 3, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 0, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 1, .piece = 0}}};
  const int together[] = {0, 0, 1, 1};
  const int apart[] = {0, 1, 2, 3};
  const topology::Link link{kBandwidth, 0};
  EXPECT_NEAR(Predicted(schedule, TwoLevelCosts(together, link, link)).seconds, 2.4, 1e-9);
  EXPECT_NEAR(Predicted(schedule, TwoLevelCosts(apart, link, link)).seconds, 1.2, 1e-9);
}

TEST(Cost, AMessageWaitsOnlyForWhatIsBusyOnItsRoute) {
  // Rank 0's first message waits for rank 2's port, which rank 1 keeps busy; its second, to rank 3,
  // does not; and rank 2 takes them one after the other.
  Schedule schedule;
  schedule.ranks = 4;
  schedule.steps = {{{.kind = StepKind::kSend, .peer = 2, .piece = 0},
                     {.kind = StepKind::kSend, .peer = 3, .piece = 0}},
                    {{.kind = StepKind::kSend, .peer = 2, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 1, .piece = 1},
                     {.kind = StepKind::kReceive, .peer = 0, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 0, .piece = 0}}};
  schedule.chunks = 2;
  const Prediction predicted = Predicted(schedule, UniformCosts(4, {kBandwidth, 0}), 2'000'000'000);
  EXPECT_NEAR(predicted.ranks[1], 1, 1e-6);
  EXPECT_NEAR(predicted.ranks[2], 2, 1e-6);
  EXPECT_NEAR(predicted.ranks[3], 2, 1e-6);
}

TEST(Cost, TheSpineIsShared) {
  const topology::Fabric fabric{.hosts_per_rack = 4,
                                .host_link = {1e9, 0},
                                .racks = 2,
                                .rack_link = {4e9, 0},
                                .spine = {2e9, 0}};
  // Four ranks of one rack send to the four of the other: 4 GB/s want through 2 GB/s.
  Schedule schedule;
  schedule.ranks = 8;
  schedule.steps.resize(8);
  for (int32_t r = 0; r < 4; ++r) {
    schedule.steps[static_cast<size_t>(r)] = {{.kind = StepKind::kSend, .peer = r + 4, .piece = 0}};
    schedule.steps[static_cast<size_t>(r + 4)] = {
        {.kind = StepKind::kReceive, .peer = r, .piece = 0}};
  }
  const absl::StatusOr<LinkCosts> costs = FabricCosts(fabric, 8);
  ASSERT_TRUE(costs.ok());
  // The last head enters the spine when three messages of 1 GB have passed it, and needs 1 s more.
  EXPECT_NEAR(Predicted(schedule, *costs, 1'000'000'000).seconds, 2.5, 1e-6);
}

TEST(Cost, EveryAlgorithmTakesNoTimeForNothing) {
  for (const Algorithm& algorithm : Algorithms()) {
    if (!algorithm.supports(Operation::kAllReduce)) continue;
    const std::vector<int> hosts = {0, 0, 1, 1};
    const Schedule schedule = Made(algorithm.name, {.ranks = 4, .hosts = hosts});
    const LinkCosts costs = TwoLevelCosts(hosts, {kBandwidth, 0}, {kBandwidth, 0}, kBandwidth);
    EXPECT_EQ(Predicted(schedule, costs, 0).seconds, 0) << algorithm.name;
    EXPECT_GT(Predicted(schedule, costs, 1000).seconds, 0) << algorithm.name;
  }
}

TEST(Cost, DeadlocksAndWrongSizesAreErrors) {
  Schedule schedule;
  schedule.ranks = 2;
  schedule.steps = {{{.kind = StepKind::kReceive, .peer = 1, .piece = 0},
                     {.kind = StepKind::kSend, .peer = 1, .piece = 0}},
                    {{.kind = StepKind::kReceive, .peer = 0, .piece = 0},
                     {.kind = StepKind::kSend, .peer = 0, .piece = 0}}};
  EXPECT_EQ(MessageOf(PredictCost(schedule, UniformCosts(2, {1, 0}), 1).status()),
            "the schedule deadlocks: 0 of its 4 steps can run");
  EXPECT_EQ(MessageOf(PredictCost(schedule, UniformCosts(3, {1, 0}), 1).status()),
            "the schedule is for 2 ranks, the links are for 3");
}

}  // namespace
}  // namespace tutti::collective
