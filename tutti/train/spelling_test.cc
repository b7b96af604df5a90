#include "tutti/train/spelling.h"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

TEST(Spelling, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"max-steps", "learning-rate", "lr", "save-every"};
  EXPECT_EQ(LikelyMeant("max-stesp", names), "max-steps");          // swapped
  EXPECT_EQ(LikelyMeant("max-step", names), "max-steps");           // left out
  EXPECT_EQ(LikelyMeant("lerning-rates", names), "learning-rate");  // left out and added
  EXPECT_EQ(LikelyMeant("saveXevery", names), "save-every");        // changed
  EXPECT_EQ(LikelyMeant("speed", names), "");
  EXPECT_EQ(LikelyMeant("x", names), "");  // half of a short word is no misspelling
  EXPECT_EQ(LikelyMeant("", names), "");
}

}  // namespace
}  // namespace tutti
