// Once warm, operations call no system allocator.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "tutti/testing/allocation_count.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

// Operations find memory that earlier ones have grown; which one finds which depends on how the
// ranks interleave. So this runs until nothing is grown any more, and that must come soon.
TEST(Steady, WarmOperationsAllocateNothing) {
  RanksUnderTest ranks(3);
  std::barrier meet(3);
  std::atomic<int64_t> grown{-1};
  ranks.Run([&](Communicator& communicator) {
    std::vector<float> small(10, 1), large(400'000, 1);
    const auto once = [&] {
      Group& world = communicator.world();
      for (const char* algorithm : {"exchange", "direct", "ring", "tree"}) {
        const CallOptions call{.key = "grads/bucket_with_a_long_name", .algorithm = algorithm};
        const Handle first = world.AllReduce(small.data(), 10, kFloat32, call);
        const Handle second = world.AllReduce(large.data(), 400'000, kFloat32, call);
        EXPECT_TRUE(second.Wait().ok());
        EXPECT_TRUE(first.Wait().ok());
      }
      EXPECT_TRUE(world.Barrier().Wait().ok());
    };
    for (int batch = 0; batch < 50 && grown != 0; ++batch) {
      meet.arrive_and_wait();
      const int64_t before = tutti::testing::AllocationCount();
      meet.arrive_and_wait();
      for (int i = 0; i < 10; ++i) once();
      meet.arrive_and_wait();
      if (communicator.rank() == 0) grown = tutti::testing::AllocationCount() - before;
      meet.arrive_and_wait();
    }
  });
  EXPECT_EQ(grown, 0) << "allocations in 10 rounds of 9 operations on 3 ranks";
}

}  // namespace
}  // namespace tutti::collective
