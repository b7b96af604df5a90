#include "tutti/train/reporting/packed_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::ElementsAre;

TEST(PackedText, ComesBackAsItWas) {
  const std::vector<Record> records = {
      {"batch-size", "64"}, {}, {""}, {"a", "", "c d\n"}, {"last"}};
  EXPECT_EQ(UnpackRecords(PackRecords(records)), records);
  EXPECT_THAT(UnpackRecords(""), ElementsAre());
}

TEST(PackedText, SeparatorsInAFieldAreTakenOut) {
  const std::vector<Record> records = {
      {"a\x1f"
       "b\x1e",
       "c"}};
  EXPECT_THAT(UnpackRecords(PackRecords(records)), ElementsAre(ElementsAre("ab", "c")));
}

TEST(PackedText, WhatIsCutOffIsLeftOut) {
  const std::vector<Record> records = {{"a", "b"}, {"c", "d"}};
  const std::string text = PackRecords(records);
  EXPECT_THAT(UnpackRecords(text.substr(0, text.size() - 1)), ElementsAre(ElementsAre("a", "b")));
}

}  // namespace
}  // namespace tutti
