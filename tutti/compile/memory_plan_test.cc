#include "tutti/compile/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace tutti {
namespace {

bool Overlaps(const MemoryRequest& a, const Placement& at, const MemoryRequest& b,
              const Placement& bt) {
  const bool together = a.first <= b.last && b.first <= a.last;
  return together && at.arena == bt.arena && a.bytes > 0 && b.bytes > 0 &&
         at.offset < bt.offset + b.bytes && bt.offset < at.offset + a.bytes;
}

TEST(PlanMemory, ChainOfTwoAtATimeNeedsTwo) {
  std::vector<MemoryRequest> requests;
  for (int i = 0; i < 10; ++i) requests.push_back({.bytes = 1024, .first = i, .last = i + 1});
  std::vector<ArenaSpec> arenas;
  ASSERT_TRUE(PlanMemory(requests, arenas).ok());
  EXPECT_EQ(arenas[0].bytes, 2048u);
}

// 1 and 2 live together for a while, and each beside a large one: 1 must lie above the first, 2
// below the second.
TEST(PlanMemory, ValuesThatLiveTogetherTakeBothEnds) {
  const MemoryRequest requests[] = {{.bytes = 2560, .first = 0, .last = 1},
                                    {.bytes = 640, .first = 1, .last = 4},
                                    {.bytes = 640, .first = 3, .last = 5},
                                    {.bytes = 2560, .first = 5, .last = 6}};
  std::vector<ArenaSpec> arenas;
  ASSERT_TRUE(PlanMemory(requests, arenas).ok());
  EXPECT_EQ(arenas[0].bytes, 3200u);
}

TEST(PlanMemory, NeverSharesBytesOfValuesThatLiveTogether) {
  for (const int count : {50, 5000}) {  // both ways of placing
    std::mt19937 random(count);
    std::vector<MemoryRequest> requests;
    int64_t live_peak = 0;
    for (int i = 0; i < count; ++i) {
      const int64_t first = random() % count;
      requests.push_back(
          {.bytes = random() % 3000, .first = first, .last = first + int64_t(random() % 20)});
    }
    std::vector<ArenaSpec> arenas;
    const auto placements = PlanMemory(requests, arenas);
    ASSERT_TRUE(placements.ok());
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ((*placements)[i].offset % 64, 0u);
      EXPECT_LE((*placements)[i].offset + requests[i].bytes, arenas[0].bytes);
      for (int j = 0; j < i; ++j) {
        ASSERT_FALSE(Overlaps(requests[i], (*placements)[i], requests[j], (*placements)[j]))
            << i << " " << j;
      }
    }
    for (int t = 0; t < count; ++t) {
      int64_t live = 0;
      for (const auto& r : requests) live += r.first <= t && t <= r.last ? int64_t(r.bytes) : 0;
      live_peak = std::max(live_peak, live);
    }
    EXPECT_LT(double(arenas[0].bytes), 1.6 * double(live_peak));
  }
}

TEST(PlanMemory, PinnedValuesKeepTheirPlaceAndShareNothing) {
  std::vector<ArenaSpec> arenas = {{}, {"bucket_0", "", 0}};
  std::vector<MemoryRequest> requests = {
      {.bytes = 100, .first = 0, .last = 1, .pinned_arena = 1, .pinned_offset = 0},
      {.bytes = 100, .first = 5, .last = 6, .pinned_arena = 1, .pinned_offset = 128},
      {.bytes = 64, .first = 0, .last = 9}};
  const auto placements = PlanMemory(requests, arenas);
  ASSERT_TRUE(placements.ok());
  EXPECT_EQ((*placements)[1].arena, 1);
  EXPECT_EQ((*placements)[1].offset, 128u);
  EXPECT_EQ(arenas[1].bytes, 228u);
  requests[1].pinned_offset = 64;
  EXPECT_EQ(MessageOf(PlanMemory(requests, arenas).status()),
            "arena \"bucket_0\": a value of 100 bytes at offset 0 overlaps one at offset 64");
}

TEST(PlanMemory, RefusesMoreThanThereCanBe) {
  std::vector<ArenaSpec> arenas;
  const std::vector<MemoryRequest> wrapped = {{.bytes = SIZE_MAX - 3}};
  EXPECT_EQ(PlanMemory(wrapped, arenas).status().code(), absl::StatusCode::kResourceExhausted);
  // Each is small enough; together they pass 2^64. Both ways of placing.
  for (const size_t count : {size_t{4000}, size_t{400'000}}) {
    arenas.clear();
    const std::vector<MemoryRequest> many(count, {.bytes = size_t{1} << 46, .last = 1});
    EXPECT_EQ(PlanMemory(many, arenas).status().code(), absl::StatusCode::kResourceExhausted);
  }
  arenas = {{}, {.name = "bucket"}};
  const std::vector<MemoryRequest> far = {
      {.bytes = 64, .pinned_arena = 1, .pinned_offset = SIZE_MAX - 10}};
  EXPECT_EQ(PlanMemory(far, arenas).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tutti
