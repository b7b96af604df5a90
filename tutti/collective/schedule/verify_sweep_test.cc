// Every algorithm, every operation that it does, any number of ranks: proven. The largest numbers
// of ranks need TUTTI_SWEEP=long.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/schedule/verify.h"

namespace tutti::collective {
namespace {

bool LongSweep() {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  return sweep != nullptr && std::string_view(sweep) == "long";
}

std::vector<int> SpreadOver(int ranks, int hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank % hosts * 7);
  return host_of;
}

// The requests for so many ranks that make an algorithm do different things.
std::vector<Request> RequestsFor(const Algorithm& algorithm, Operation operation, int ranks,
                                 const std::vector<std::vector<int>>& spreads) {
  // Segments beyond 16 ranks only for powers of two and their neighbours, and for some others.
  const bool with_segments = ranks <= 16 || ranks % 8 <= 1 || ranks % 8 == 7 || LongSweep();
  std::vector<Request> requests;
  for (const int segments : {1, 3}) {
    if (segments > 1 && !with_segments) continue;
    Request request{
        .operation = operation, .ranks = ranks, .root = ranks * 2 / 3, .segments = segments};
    if (algorithm.name == "ring") request.leftwards = segments == 3;
    requests.push_back(request);
    if (algorithm.name == "hierarchical") {
      for (const std::vector<int>& spread : spreads) {
        request.hosts = spread;
        requests.push_back(request);
      }
    }
    if (algorithm.name == "central") {
      for (const int servers : {2, ranks / 2, ranks}) {
        if (servers < 1 || servers > ranks) continue;
        request.variant = CentralVariant(servers);
        requests.push_back(request);
        request.variant = CentralVariant(servers, true);
        if (servers < ranks) requests.push_back(request);
      }
    }
  }
  return requests;
}

void ExpectProven(const Algorithm& algorithm, int ranks) {
  const std::vector<std::vector<int>> spreads = {
      SpreadOver(ranks, std::min(2, ranks)), SpreadOver(ranks, std::min(3, ranks)),
      SpreadOver(ranks, (ranks + 1) / 2), SpreadOver(ranks, ranks)};
  for (int operation = 1; operation <= 9; ++operation) {
    if (!algorithm.supports(Operation(operation))) continue;
    for (const Request& request : RequestsFor(algorithm, Operation(operation), ranks, spreads)) {
      SCOPED_TRACE(std::string(algorithm.name) + " " + std::string(NameOf(Operation(operation))) +
                   " ranks " + std::to_string(ranks) + " segments " +
                   std::to_string(request.segments) + " variant " +
                   std::to_string(request.variant));
      const auto schedule = algorithm.make(request);
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      const absl::Status status = Verify(*schedule);
      ASSERT_TRUE(status.ok()) << status << "\n" << (ranks <= 6 ? ToText(*schedule) : "");
    }
  }
}

class VerifySweep : public testing::TestWithParam<std::string_view> {};

TEST_P(VerifySweep, AcceptsUpTo64Ranks) {
  const Algorithm& algorithm = **FindAlgorithm(GetParam());
  for (int ranks = 1; ranks <= 64; ++ranks) {
    ExpectProven(algorithm, ranks);
    if (HasFatalFailure()) return;
  }
}

TEST_P(VerifySweep, AcceptsManyRanks) {
  const Algorithm& algorithm = **FindAlgorithm(GetParam());
  for (const int ranks : {100, 128, 255, 512, 1000, 1024}) {
    if (ranks > 128 && !LongSweep()) continue;
    if (algorithm.supports(Operation::kAllReduce)) {
      const std::vector<int> hosts = SpreadOver(ranks, ranks / 8);
      const auto schedule =
          algorithm.make({.ranks = ranks, .variant = CentralVariant(3), .hosts = hosts});
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      EXPECT_TRUE(Verify(*schedule).ok()) << ranks << " ranks: " << Verify(*schedule);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, VerifySweep,
                         testing::Values("exchange", "direct", "ring", "halving-doubling", "tree",
                                         "hierarchical", "central"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(VerifySweep, AcceptsTheRingOf1024) {
  const auto schedule = (*FindAlgorithm("ring"))->make({.ranks = 1024});
  ASSERT_TRUE(schedule.ok());
  EXPECT_TRUE(Verify(*schedule).ok());
}

}  // namespace
}  // namespace tutti::collective
