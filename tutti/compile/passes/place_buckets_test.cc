#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"

namespace tutti {
namespace {

const std::string kStart =
    "x = Placeholder() {dtype=float32, shape=[5]}\n"
    "y = Placeholder() {dtype=float32, shape=[2, 10]}\n";
const std::string kFeeds = "feed x\nfeed y\n";
const std::string kAttrs = "{algorithm=\"\", group=\"\", key=\"\", wire=\"as-is\"}\n";
const std::string kPlaced =
    "{_placed=true, algorithm=\"\", group=\"\", key=\"\", wire=\"as-is\"}\n";
const std::string kUses = "u = Neg(s)\nv = Neg(s:1)\n";
const std::string kEnd = kFeeds + "fetch u\nfetch v\n";

TEST(PlaceBuckets, ValuesAreComputedIntoTheBucket) {
  EXPECT_EQ(TextAfter(PlaceBuckets, kStart + "a = Exp(x)\nb = Exp(y)\ns, = AllReduce(a, b) " +
                                        kAttrs + kUses + kEnd),
            kStart +
                "a = Exp(x) {_arena_kind=\"registered\", _pinned=strings [\"s@0\"]}\n"
                "b = Exp(y) {_arena_kind=\"registered\", _pinned=strings [\"s@64\"]}\n"
                "s, = AllReduce(a, b) " +
                kPlaced + kUses + kEnd);
}

TEST(PlaceBuckets, AViewIsPlacedThroughWhatItShows) {
  EXPECT_EQ(TextAfter(PlaceBuckets, kStart + "a = Exp(y)\nb = Identity(a)\ns = AllReduce(b) " +
                                        kAttrs + "u = Neg(s)\n" + kFeeds + "fetch u\n"),
            kStart +
                "a = Exp(y) {_arena_kind=\"registered\", _pinned=strings [\"s@0\"]}\n"
                "b = Identity(a)\n"
                "s = AllReduce(b) " +
                kPlaced + "u = Neg(s)\n" + kFeeds + "fetch u\n");
}

// Fed, read by somebody else, and twice in the bucket: each gets a copy.
TEST(PlaceBuckets, WhatOthersReadIsCopiedIn) {
  EXPECT_EQ(TextAfter(PlaceBuckets, kStart + "b = Exp(y)\ns, = AllReduce(x, b) " + kAttrs + kUses +
                                        "w = Neg(b)\n" + kEnd + "fetch w\n"),
            kStart +
                "b = Exp(y)\n"
                "s/copy = _Copy(x) {_arena_kind=\"registered\", _pinned=strings [\"s@0\"]}\n"
                "s/copy_1 = _Copy(b) {_arena_kind=\"registered\", _pinned=strings [\"s@64\"]}\n"
                "s, = AllReduce(s/copy, s/copy_1) " +
                kPlaced + kUses + "w = Neg(b)\n" + kEnd + "fetch w\n");
}

TEST(PlaceBuckets, WhatLeavesTheStepIsCopiedOut) {
  EXPECT_EQ(TextAfter(PlaceBuckets,
                      kStart + "a = Exp(x)\ns = AllReduce(a) " + kAttrs + kFeeds + "fetch s\n"),
            kStart +
                "a = Exp(x) {_arena_kind=\"registered\", _pinned=strings [\"s@0\"]}\n"
                "s = AllReduce(a) " +
                kPlaced + "s/copy = _Copy(s)\n" + kFeeds + "fetch s/copy\n");
}

}  // namespace
}  // namespace tutti
