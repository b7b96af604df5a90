#include "tutti/collective/schedule/schedule.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/schedule/verify.h"

namespace tutti::collective {
namespace {

constexpr Step kSend01 = {.kind = StepKind::kSend, .peer = 0, .piece = 1};
constexpr Step kReceive01 = {.kind = StepKind::kReceive, .peer = 0, .piece = 1};
constexpr Step kReceive02 = {.kind = StepKind::kReceive, .peer = 0, .piece = 2};
constexpr Step kSignal0 = {.kind = StepKind::kSignal, .peer = 0};
constexpr Step kAwait0 = {.kind = StepKind::kAwait, .peer = 0};

TEST(MustWait, IsForConflictsAwaitsAndSignals) {
  EXPECT_FALSE(MustWait(kSend01, kSend01)) << "two reads";
  EXPECT_TRUE(MustWait(kSend01, kReceive01)) << "a write after a read";
  EXPECT_TRUE(MustWait(kReceive01, kSend01)) << "a read after a write";
  EXPECT_TRUE(MustWait(kReceive01, kReceive01)) << "two writes";
  EXPECT_FALSE(MustWait(kReceive01, kReceive02)) << "different pieces";
  EXPECT_TRUE(MustWait(kSend01, kSignal0)) << "a signal waits for all";
  EXPECT_FALSE(MustWait(kSignal0, kSend01));
  EXPECT_TRUE(MustWait(kAwait0, kSend01)) << "all wait for an await";
  EXPECT_FALSE(MustWait(kSend01, kAwait0));
  const Step copy = {.kind = StepKind::kCopy, .piece = 2, .source = 1};
  EXPECT_TRUE(MustWait(kReceive01, copy));
  EXPECT_TRUE(MustWait(kReceive02, copy));
  EXPECT_FALSE(MustWait(kSend01, copy));
  const Step store = {.kind = StepKind::kStoreTo, .piece = 1, .set = 0};
  EXPECT_FALSE(MustWait(store, kSend01)) << "here, a store-to reads";
  EXPECT_TRUE(MustWait(kReceive01, store));
}

TEST(OperationFromName, KnowsAllAndListsThem) {
  for (int i = 1; i <= 9; ++i) {
    EXPECT_EQ(*OperationFromName(NameOf(Operation(i))), Operation(i));
  }
  EXPECT_EQ(MessageOf(OperationFromName("allreduce").status()),
            "there is no operation \"allreduce\"; there are all-reduce, reduce-scatter, "
            "all-gather, broadcast, reduce, gather, scatter, all-to-all, barrier");
}

constexpr std::string_view kText =
    "schedule made-up all-reduce ranks=2 chunks=2 segments=2 root=0\n"
    "scratch: 1 3\n"
    "contributors: 0\n"
    "set 0: 0 1\n"
    "rank 0\n"
    "  send 1 0\n"
    "  receive 1 1\n"
    "  receive-reduce 1 2\n"
    "  copy 4 1\n"
    "  reduce 3 5\n"
    "rank 1\n"
    "  signal 0\n"
    "  await 0\n"
    "  reduce-from 0 3\n"
    "  store-to 0 3\n"
    "  reduce-to-all 0 2\n";

TEST(ScheduleText, IsWhatTheHeaderShows) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(kText);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->algorithm, "made-up");
  EXPECT_EQ(schedule->ranks, 2);
  EXPECT_EQ(schedule->pieces(), 6);
  EXPECT_EQ(schedule->steps[0].size(), 5u);
  EXPECT_EQ(schedule->steps[0][4], (Step{.kind = StepKind::kReduce, .piece = 3, .source = 5}));
  EXPECT_EQ(schedule->steps[1][3], (Step{.kind = StepKind::kStoreTo, .piece = 3, .set = 0}));
  EXPECT_EQ(ToText(*schedule), kText);
}

TEST(ScheduleText, GivesBackEveryAlgorithm) {
  for (const Algorithm& algorithm : Algorithms()) {
    for (int operation = 1; operation <= 9; ++operation) {
      if (!algorithm.supports(Operation(operation))) continue;
      for (int ranks = 1; ranks <= 6; ++ranks) {
        const auto schedule = algorithm.make(
            {.operation = Operation(operation), .ranks = ranks, .root = ranks / 2, .segments = 2});
        ASSERT_TRUE(schedule.ok()) << schedule.status();
        const auto again = ParseSchedule(ToText(*schedule));
        ASSERT_TRUE(again.ok()) << again.status();
        EXPECT_EQ(*again, *schedule);
      }
    }
  }
}

TEST(ScheduleText, SaysWhatIsWrongAndWhere) {
  const auto replaced = [](std::string_view what, std::string_view with) {
    std::string text(kText);
    text.replace(text.find(what), what.size(), with);
    return std::string(MessageOf(ParseSchedule(text).status()));
  };
  EXPECT_EQ(replaced("send 1 0", "send 2 0"),
            "schedule, line 6: send 2 0: the peer is 2, expected 0 to 1");
  EXPECT_EQ(replaced("send 1 0", "send 0 0"),
            "schedule, line 6: send 0 0: the peer is rank 0 itself");
  EXPECT_EQ(replaced("send 1 0", "send 1 6"),
            "schedule, line 6: send 1 6: the piece is 6, expected 0 to 5");
  EXPECT_EQ(replaced("send 1 0", "send 1"),
            "schedule, line 6: \"send\" with 1 numbers stands there, expected 2");
  EXPECT_EQ(replaced("send 1 0", "throw 1 0"),
            "schedule, line 6: \"throw\" stands there, expected a step");
  EXPECT_EQ(replaced("store-to 0 3", "store-to 1 3"),
            "schedule, line 15: store-to 1 3: the set is 1, expected 0 to 0");
  EXPECT_EQ(replaced("copy 4 1", "copy 4 4"),
            "schedule, line 9: copy 4 4: piece and source are both 4, expected two pieces");
  EXPECT_EQ(replaced("send 1 0", "send 1 99999999999"),
            "schedule, line 6: \"99999999999\" stands there, expected a number");
  EXPECT_EQ(replaced("scratch: 1 3", "scratch: 1 4"),
            "schedule, line 2: scratch: a data piece is 4, expected 0 to 3");
  EXPECT_EQ(replaced("set 0: 0 1", "set 0: 1 0"),
            "schedule, line 4: rank 0 stands behind rank 1, expected ascending order");
  EXPECT_EQ(MessageOf(ParseSchedule(kText.substr(0, kText.find("rank 1"))).status()),
            "schedule: the text ends after 1 ranks, expected 2");
  EXPECT_EQ(replaced("ranks=2", "ranks=5000"), "schedule, line 1: ranks=5000, expected 1 to 4096");
  EXPECT_EQ(replaced("chunks=2 segments=2", "chunks=2000000000 segments=2000000000"),
            "schedule, line 1: chunks=2000000000 segments=2000000000 and 0 scratch pieces, "
            "expected 1 to 16777216 pieces");
  EXPECT_EQ(replaced("all-reduce ranks=2 chunks=2", "all-to-all ranks=2 chunks=2"),
            "schedule, line 1: chunks=2, expected 4 for all-to-all among 2 ranks");
  EXPECT_EQ(MessageOf(ParseSchedule("").status()),
            "schedule: the text is empty, expected \"schedule ALGORITHM OPERATION ranks=...\"");
}

// Whatever stands in the text, the outcome is a Status or a schedule that can be written and read.
TEST(ScheduleText, SurvivesDamage) {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  const int rounds = sweep != nullptr && std::string_view(sweep) == "long" ? 1'000'000 : 20'000;
  int accepted = 0;
  for (int seed = 0; seed < rounds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(static_cast<unsigned>(seed));
    std::string text(kText);
    for (unsigned i = 0; i <= random() % 3; ++i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = "0123456789 \n:=-srac\xff"[random() % 20];
          break;
        case 1:
          text.erase(at, 1 + random() % 12);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), 1 + random() % 24));
          break;
        default:
          text.resize(at + 1);
      }
      if (text.empty()) break;
    }
    const auto schedule = ParseSchedule(text);
    if (!schedule.ok()) continue;
    ++accepted;
    EXPECT_TRUE(CheckSchedule(*schedule).ok());
    const auto again = ParseSchedule(ToText(*schedule));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *schedule);
  }
  EXPECT_GT(accepted, rounds / 100);
}

// What the fuzzer is started with, and whatever it finds, stays right.
TEST(ScheduleText, ReadsTheCorpus) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TUTTI_SCHEDULE_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path());
    const std::string text(std::istreambuf_iterator<char>(file), {});
    ++files;
    const auto schedule = ParseSchedule(text);
    if (!schedule.ok()) continue;
    EXPECT_EQ(*ParseSchedule(ToText(*schedule)), *schedule);
    EXPECT_TRUE(Verify(*schedule).ok()) << Verify(*schedule);
  }
  EXPECT_GT(files, 10);
}

TEST(FindAlgorithm, ListsTheNames) {
  EXPECT_EQ((*FindAlgorithm("ring"))->name, "ring");
  EXPECT_TRUE(MessageOf(FindAlgorithm("rong").status())
                  .starts_with("there is no algorithm \"rong\"; there are "));
}

}  // namespace
}  // namespace tutti::collective
