#include "tutti/base/progress_text.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

const ProgressText kText = {
    .front = "step 1200/2345", .facts = {"36.3/s", "loss 0.2265", "0:32 left"}, .share = 0.5117};

TEST(Fit, ShowsABarWhereThereIsRoom) {
  EXPECT_EQ(Fit(kText, {.width = 62}),
            "step 1200/2345 [======>     ]  36.3/s  loss 0.2265  0:32 left");
  EXPECT_EQ(Fit(kText, {.width = 200}).size(), 15 + 42 + 32u);
}

TEST(Fit, DropsTheBarThenWholeFactsFromTheEnd) {
  EXPECT_EQ(Fit(kText, {.width = 50}), "step 1200/2345  36.3/s  loss 0.2265  0:32 left");
  EXPECT_EQ(Fit(kText, {.width = 40}), "step 1200/2345  36.3/s  loss 0.2265");
  EXPECT_EQ(Fit(kText, {.width = 30}), "step 1200/2345  36.3/s");
  EXPECT_EQ(Fit(kText, {.width = 20}), "step 1200/2345");
  EXPECT_EQ(Fit(kText, {.width = 8}), "step 12");
  EXPECT_EQ(Fit(kText, {.width = 1}), "");
}

TEST(Fit, ShowsNoBarWithoutATotal) {
  EXPECT_EQ(Fit({.front = "row 7", .facts = {"0.25/s"}}, {.width = 100}), "row 7  0.25/s");
}

TEST(Pack, ComesBack) {
  EXPECT_EQ(UnpackProgress(Pack(kText)), kText);
  const ProgressText bare = {.front = "row 7"};
  EXPECT_EQ(UnpackProgress(Pack(bare)), bare);
}

TEST(Pack, IsNotTakenForOtherText) {
  for (const char* other : {"", "step 1/2", "0.5", "x\ty"}) {
    EXPECT_EQ(UnpackProgress(other), std::nullopt) << other;
  }
}

}  // namespace
}  // namespace tutti
