#include "tutti/collective/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tutti/base/status.h"
#include "tutti/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

TEST(Communicator, SumsAreMade) {
  RanksUnderTest ranks(4);
  ranks.Run([](Communicator& communicator) {
    std::vector<float> data(100, static_cast<float>(communicator.rank() + 1));
    ASSERT_TRUE(communicator.world().AllReduce(data.data(), 100, kFloat32).Wait().ok());
    EXPECT_EQ(data, std::vector<float>(100, 10));
  });
}

}  // namespace
}  // namespace tutti::collective
