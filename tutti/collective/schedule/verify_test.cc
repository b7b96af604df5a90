#include "tutti/collective/schedule/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {
namespace {

Schedule Parse(std::string_view text) { return ValueOrThrow(ParseSchedule(text)); }
std::string Fault(std::string_view text) {
  const absl::Status status = Verify(Parse(text));
  EXPECT_EQ(status.code(),
            status.ok() ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
  return std::string(MessageOf(status));
}

TEST(Verify, AcceptsAnExchange) {
  EXPECT_EQ(Fault("schedule x all-reduce ranks=2 chunks=1 segments=1 root=0\n"
                  "scratch: 0\n"
                  "rank 0\n send 1 0\n receive 1 1\n reduce 0 1\n"
                  "rank 1\n send 0 0\n receive 0 1\n reduce 0 1\n"),
            "");
}

TEST(Verify, NamesWhatIsMissing) {
  EXPECT_EQ(Fault("schedule x all-reduce ranks=3 chunks=1 segments=1 root=0\n"
                  "rank 0\n receive-reduce 1 0\n send 1 0\n"
                  "rank 1\n send 0 0\n receive 0 0\n"
                  "rank 2\n"),
            "rank 0 ends with piece 0 of ranks 0-1 in piece 0, expected piece 0 of ranks 0-2; "
            "written last by rank 0, step 0 (receive-reduce 1 0)");
}

TEST(Verify, NamesWhatIsThereTwice) {
  EXPECT_EQ(Fault("schedule x reduce ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n receive-reduce 1 0\n receive-reduce 1 0\n"
                  "rank 1\n send 0 0\n send 0 0\n"),
            "rank 0 ends with piece 0 of ranks 0; 2 times piece 0 of ranks 1 in piece 0, expected "
            "piece 0 of ranks 0-1; written last by rank 0, step 1 (receive-reduce 1 0)");
}

TEST(Verify, NothingCanBeAddedToWhatHoldsNothing) {
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n send 1 0\n"
                  "rank 1\n receive-reduce 0 0\n"),
            "rank 1 ends with nothing in piece 0, expected piece 0 of ranks 0; written last by "
            "rank 1, step 0 (receive-reduce 0 0)");
}

TEST(Verify, NamesMessagesWithoutTheirOtherEnd) {
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n send 1 0\n send 1 0\n"
                  "rank 1\n receive 0 0\n"),
            "rank 0, step 1 (send 1 0): rank 1 has no receive that takes it");
  EXPECT_EQ(Fault("schedule x barrier ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n await 1\n"
                  "rank 1\n"),
            "rank 0, step 0 (await 1): rank 1 has no signal for it");
}

// Both send the piece that they receive into: where sends wait for receives, none goes first.
TEST(Verify, NamesTheStepsThatWaitForEachOther) {
  EXPECT_EQ(Fault("schedule x all-reduce ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n send 1 0\n receive-reduce 1 0\n"
                  "rank 1\n send 0 0\n receive-reduce 0 0\n"),
            "deadlock: rank 0, step 0 (send 1 0) waits for rank 1 to reach step 1; rank 1, step 0 "
            "(send 0 0) waits for rank 0 to reach step 1");
}

// A signal waits for the send before it, the send for its receive, and that for the signal.
TEST(Verify, SeesThatASignalWaitsForAllBeforeIt) {
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=1 segments=1 root=0\n"
                  "rank 0\n send 1 0\n signal 1\n"
                  "rank 1\n await 0\n receive 0 0\n"),
            "deadlock: rank 0, step 0 (send 1 0) waits for rank 1 to reach step 1; rank 1, step 0 "
            "(await 0) waits for rank 0 to reach step 1");
}

TEST(Verify, SeesThatSizesDiffer) {
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=2 segments=1 root=0\n"
                  "rank 0\n send 1 0\n send 1 1\n"
                  "rank 1\n receive 0 1\n receive 0 0\n"),
            "rank 0, step 0 (send 1 0) to rank 1, step 0 (receive 0 1): piece 0 and piece 1 may "
            "have different sizes");
}

TEST(Verify, SeesTouchesBeforeTheStartAndAfterTheEnd) {
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=1 segments=1 root=0\n"
                  "set 0: 0\n"
                  "rank 0\n await 1\n"
                  "rank 1\n reduce-from 0 0\n signal 0\n"),
            "race: rank 1, step 0 (reduce-from 0 0) may touch piece 0 of rank 0 before that rank "
            "has started: it awaits no signal from there");
  EXPECT_EQ(Fault("schedule x broadcast ranks=2 chunks=1 segments=1 root=0\n"
                  "set 0: 0\n"
                  "rank 0\n signal 1\n"
                  "rank 1\n await 0\n reduce-from 0 0\n"),
            "race: rank 1, step 1 (reduce-from 0 0) may touch piece 0 of rank 0 after that rank "
            "has finished: its last await does not follow");
}

TEST(Verify, SeesTouchesAtTheSameTime) {
  EXPECT_EQ(Fault("schedule x all-reduce ranks=2 chunks=1 segments=1 root=0\n"
                  "set 0: 0 1\n"
                  "rank 0\n signal 1\n await 1\n reduce-to-all 0 0\n signal 1\n await 1\n"
                  "rank 1\n signal 0\n await 0\n reduce-to-all 0 0\n signal 0\n await 0\n")
                .substr(0, 5),
            "race:");
}

TEST(Verify, SeesABarrierThatLetsGoTooEarly) {
  EXPECT_EQ(Fault("schedule x barrier ranks=3 chunks=1 segments=1 root=0\n"
                  "rank 0\n signal 1\n await 2\n"
                  "rank 1\n signal 2\n await 0\n"
                  "rank 2\n signal 0\n await 1\n"),
            "rank 0 may leave the barrier before rank 1 has entered it: no chain of signals leads "
            "from there");
}

TEST(Verify, KeepsTheInputOfAllToAll) {
  EXPECT_EQ(Fault("schedule x all-to-all ranks=1 chunks=2 segments=1 root=0\n"
                  "rank 0\n copy 0 1\n"),
            "rank 0, step 0 (copy 0 1): writes into the input of all-to-all, piece 0");
}

TEST(Verify, RefusesNumbersOutOfRange) {
  Schedule schedule = Parse("schedule x barrier ranks=1 chunks=1 segments=1 root=0\nrank 0\n");
  schedule.steps[0].push_back({.kind = StepKind::kSend, .peer = 7, .piece = 0});
  EXPECT_EQ(MessageOf(Verify(schedule)), "rank 0, step 0: the peer is 7, expected 0 to 0");
  schedule.steps[0][0] = {.kind = StepKind(99)};
  EXPECT_EQ(MessageOf(Verify(schedule)), "rank 0, step 0: there is no step of kind 99");
}

// What the essays claim.
Work WorkOf(std::string_view algorithm, Request request) {
  return CountWork(ValueOrThrow((*FindAlgorithm(algorithm))->make(request)));
}
double Most(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

TEST(CountWork, Ring) {
  for (const int n : {2, 3, 7, 16}) {
    const Work work = WorkOf("ring", {.ranks = n, .segments = 2});
    EXPECT_EQ(work.rounds, 2 * (n - 1));
    EXPECT_NEAR(Most(work.sent), 2.0 * (n - 1) / n, 1e-9);
    EXPECT_NEAR(Most(work.received), 2.0 * (n - 1) / n, 1e-9);
    EXPECT_NEAR(Most(work.reduced), 1.0 * (n - 1) / n, 1e-9);
    EXPECT_EQ(work.links.size(), size_t(n));
    EXPECT_EQ(work.steps[0], 2 * 2 * 2 * (n - 1));
  }
}

TEST(CountWork, Direct) {
  const Work work = WorkOf("direct", {.ranks = 4});
  EXPECT_EQ(work.rounds, 3);
  EXPECT_EQ(Most(work.sent), 0);
  EXPECT_NEAR(std::accumulate(work.loaded.begin(), work.loaded.end(), 0.0), 2 * 4, 1e-9);
}

TEST(CountWork, HalvingDoubling) {
  for (const int n : {2, 3, 5, 8, 13}) {
    const Work work = WorkOf("halving-doubling", {.ranks = n});
    EXPECT_LE(work.rounds, 2 * std::ceil(std::log2(n)));
    EXPECT_GE(work.rounds, 2 * std::floor(std::log2(n)));
    EXPECT_NEAR(Most(work.sent), 2.0 * (n - 1) / n, 1e-9);
  }
}

TEST(CountWork, Tree) {
  for (const int n : {3, 6, 17, 64}) {
    const Work work = WorkOf("tree", {.ranks = n});
    EXPECT_LE(work.rounds, 2 * std::ceil(std::log2(n + 1)));
    EXPECT_LE(Most(work.sent), 2.0 + 1e-9);
    EXPECT_LE(Most(work.received), 2.0 + 1e-9);
  }
}

TEST(CountWork, Exchange) {
  const Work work = WorkOf("exchange", {.ranks = 5});
  EXPECT_EQ(work.rounds, 1);
  EXPECT_NEAR(Most(work.sent), 4, 1e-9);
  EXPECT_EQ(WorkOf("exchange", {.operation = Operation::kBarrier, .ranks = 5}).rounds, 3);
  const Work turned = WorkOf("exchange", {.operation = Operation::kAllToAll, .ranks = 4});
  EXPECT_NEAR(Most(turned.sent), 0.75, 1e-9);
}

TEST(CountWork, Central) {
  const Work with_worker = WorkOf("central", {.ranks = 10});
  EXPECT_EQ(with_worker.rounds, 2);
  EXPECT_NEAR(with_worker.received[0], 9, 1e-9);
  EXPECT_NEAR(with_worker.sent[0], 9, 1e-9);
  const Work apart = WorkOf("central", {.ranks = 6, .variant = CentralVariant(2, true)});
  EXPECT_NEAR(apart.received[5], 4 / 2.0, 1e-9);
  EXPECT_NEAR(apart.sent[0], 1, 1e-9);
}

TEST(CountWork, Hierarchical) {
  const std::vector<int> hosts = {0, 0, 1, 1};
  for (const int segments : {1, 4}) {
    const Work work = WorkOf("hierarchical", {.ranks = 4, .segments = segments, .hosts = hosts});
    double between = 0;
    for (const Work::Link& link : work.links) {
      if (link.from / 2 == 0 && link.to / 2 == 1) between += link.bytes;
    }
    EXPECT_NEAR(between, 1, 1e-9) << "2(H-1)/H K out of a host";
  }
}

}  // namespace
}  // namespace tutti::collective
