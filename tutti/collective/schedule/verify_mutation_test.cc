// Damaged schedules: steps swapped, dropped, doubled, or changed. The verifier must reject exactly
// those that the second opinion of interleaving.h finds wrong. TUTTI_SWEEP=long tries fifty times
// as many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>

#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/schedule/verify.h"
#include "tutti/testing/collective/interleaving.h"

namespace tutti::collective {
namespace {

bool LongSweep() {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  return sweep != nullptr && std::string_view(sweep) == "long";
}

// A schedule for some ranks, drawn by the seed.
Schedule DrawSchedule(const Algorithm& algorithm, std::mt19937_64& random) {
  std::vector<Operation> operations;
  for (int i = 1; i <= 9; ++i) {
    if (algorithm.supports(Operation(i))) operations.push_back(Operation(i));
  }
  const int ranks = 2 + int(random() % 4);
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(int(random() % 3));
  const int servers = 1 + int(random() % uint64_t(ranks - 1));
  Request request{.operation = operations[random() % operations.size()],
                  .ranks = ranks,
                  .root = int(random() % uint64_t(ranks)),
                  .segments = 1 + int(random() % 2),
                  .variant = CentralVariant(servers, random() % 2 == 0),
                  .leftwards = random() % 2 == 0,
                  .hosts = hosts};
  const auto schedule = algorithm.make(request);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

enum class Damage { kSwap, kSwapNeighbours, kDrop, kDuplicate, kDropMessage, kChange };
constexpr int kDamages = 6;

// Changes one rank's list (or, for a message, that of both ends); false if there is nothing to.
bool Apply(Damage damage, Schedule& schedule, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return size_t(random() % n); };
  std::vector<Step>& steps = schedule.steps[below(schedule.steps.size())];
  if (steps.size() < 2) return false;
  const size_t at = below(steps.size());
  switch (damage) {
    case Damage::kSwap:
      std::swap(steps[at], steps[below(steps.size())]);
      return true;
    case Damage::kSwapNeighbours:
      std::swap(steps[at], steps[at == 0 ? 1 : at - 1]);
      return true;
    case Damage::kDrop:
      steps.erase(steps.begin() + ptrdiff_t(at));
      return true;
    case Damage::kDuplicate: {
      const Step copy = steps[at];
      steps.insert(steps.begin() + ptrdiff_t(at), copy);
      return true;
    }
    case Damage::kDropMessage: {
      // The last of its kind between two ranks, with the last that takes one.
      const Step step = steps[at];
      const bool signal = step.kind == StepKind::kSignal;
      if (!signal && step.kind != StepKind::kSend) return false;
      const int rank = int(&steps - schedule.steps.data());
      auto& others = schedule.steps[size_t(step.peer)];
      const auto last = std::find_if(others.rbegin(), others.rend(), [&](const Step& other) {
        return other.peer == rank && (signal ? other.kind == StepKind::kAwait
                                             : other.kind == StepKind::kReceive ||
                                                   other.kind == StepKind::kReceiveReduce);
      });
      others.erase(std::next(last).base());
      steps.erase(steps.begin() + ptrdiff_t(at));
      return true;
    }
    case Damage::kChange: {
      Step& step = steps[at];
      if (step.kind == StepKind::kReceive) {
        step.kind = StepKind::kReceiveReduce;
      } else if (step.kind == StepKind::kReceiveReduce) {
        step.kind = StepKind::kReceive;
      } else if (step.piece >= 0) {
        step.piece = int32_t(below(size_t(schedule.pieces())));
        return step.piece != step.source;
      } else {
        const int rank = int(&steps - schedule.steps.data());
        step.peer = int32_t(below(schedule.steps.size()));
        return step.peer != rank;
      }
      return true;
    }
  }
  return false;
}

// Empty if the schedule is right, as far as many games tell.
std::string SecondOpinion(const Schedule& schedule, std::mt19937_64& random) {
  for (int game = 0; game < 12; ++game) {
    std::string fault = PlayOnce(schedule, random);
    if (!fault.empty()) return fault;
  }
  return FindUnordered(schedule);
}

class VerifyMutation : public testing::TestWithParam<std::string_view> {};

TEST_P(VerifyMutation, IsRejectedIfAndOnlyIfItIsWrong) {
  const Algorithm& algorithm = **FindAlgorithm(GetParam());
  const int rounds = LongSweep() ? 20'000 : 400;
  std::map<Damage, int> accepted;
  std::map<Damage, int> rejected;
  for (int seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    Schedule schedule = DrawSchedule(algorithm, random);
    const auto damage = Damage(seed % kDamages);
    if (!Apply(damage, schedule, random)) continue;
    const absl::Status status = Verify(schedule);
    const std::string opinion = SecondOpinion(schedule, random);
    ASSERT_EQ(status.ok(), opinion.empty())
        << "seed " << seed << ", damage " << int(damage) << "\nverifier: " << status
        << "\nsecond opinion: " << (opinion.empty() ? "right" : opinion) << "\n"
        << ToText(schedule);
    ++(status.ok() ? accepted : rejected)[damage];
  }
  for (int i = 0; i < kDamages; ++i) {
    const auto damage = Damage(i);
    EXPECT_GT(rejected[damage], 0) << "damage " << i;
    RecordProperty("damage " + std::to_string(i), std::to_string(rejected[damage]) + " rejected, " +
                                                      std::to_string(accepted[damage]) +
                                                      " accepted");
  }
  EXPECT_EQ(accepted[Damage::kDrop], 0) << "no algorithm has a step that it does not need";
  EXPECT_GT(accepted[Damage::kSwapNeighbours], 0) << "neighbours that are independent may swap";
}

// Random programs in which nothing is right or wrong but the order of steps: the result is rank 0's
// own data, which nobody touches, and the other ranks play in each other's memory.
Schedule DrawGame(std::mt19937_64& random) {
  const auto player = [&] { return 1 + int32_t(random() % 3); };
  Schedule game{.algorithm = "game",
                .ranks = 4,
                .chunks = 2,
                .sets = {{1, 2}, {1, 3}, {2, 3}, {1, 2, 3}, {1}, {2}, {3}},
                .steps = std::vector<std::vector<Step>>(4),
                .contributors = {0}};
  const auto signal = [&](int32_t from, int32_t to) {
    game.steps[size_t(from)].push_back({.kind = StepKind::kSignal, .peer = to});
    game.steps[size_t(to)].push_back({.kind = StepKind::kAwait, .peer = from});
  };
  const auto meet = [&] {
    for (const int32_t other : {2, 3}) signal(other, 1);
    for (const int32_t other : {2, 3}) signal(1, other);
  };
  meet();
  for (uint64_t moves = 2 + random() % 6; moves > 0; --moves) {
    const int32_t from = player();
    const int32_t to = player();
    const auto piece = int32_t(random() % 2);
    switch (random() % 5) {
      case 0:
      case 1:
        if (from != to) signal(from, to);
        break;
      case 2:
        if (from == to) break;
        game.steps[size_t(from)].push_back({.kind = StepKind::kSend, .peer = to, .piece = piece});
        game.steps[size_t(to)].push_back(
            {.kind = StepKind::kReceive, .peer = from, .piece = piece});
        break;
      default:
        game.steps[size_t(from)].push_back({.kind = StepKind(8 + random() % 3),
                                            .piece = piece,
                                            .set = int32_t(random() % game.sets.size())});
    }
  }
  if (random() % 8 != 0) meet();
  return game;
}

TEST(VerifyGames, AreRejectedIfAndOnlyIfStepsAreUnordered) {
  const int rounds = LongSweep() ? 200'000 : 4'000;
  int accepted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    const Schedule game = DrawGame(random);
    const absl::Status status = Verify(game);
    const std::string opinion = SecondOpinion(game, random);
    ASSERT_EQ(status.ok(), opinion.empty())
        << "seed " << seed << "\nverifier: " << status
        << "\nsecond opinion: " << (opinion.empty() ? "right" : opinion) << "\n"
        << ToText(game);
    if (status.ok()) ++accepted;
  }
  EXPECT_GT(accepted, rounds / 10);
  EXPECT_LT(accepted, rounds * 9 / 10);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, VerifyMutation,
                         testing::Values("exchange", "direct", "ring", "halving-doubling", "tree",
                                         "hierarchical", "central"),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tutti::collective
