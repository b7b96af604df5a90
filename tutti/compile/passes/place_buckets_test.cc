#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/device/kernel_registry.h"

namespace tutti {
namespace {

const std::string kStart =
    "x = Placeholder() {dtype=float32, shape=[5]}\n"
    "y = Placeholder() {dtype=float32, shape=[2, 10]}\n";
const std::string kFeeds = "feed x\nfeed y\n";
const std::string kAttrs = "{algorithm=\"\", group=\"\", key=\"\", wire=\"as-is\"}\n";
const std::string kUses = "u = Neg(s)\nv = Neg(s:1)\n";
const std::string kEnd = kFeeds + "fetch u\nfetch v\n";

// The runtime, which has the kernel of _Copy, is no part of this test.
std::string Placed(std::string_view program) {
  [[maybe_unused]] static const bool added = [] {
    AddFunctionKernel(KernelRegistry::Global(), "_Copy", "cpu",
                      [](KernelContext&) { return absl::OkStatus(); });
    return true;
  }();
  return TextAfter(PlaceBuckets, program);
}

TEST(PlaceBuckets, ValuesAreComputedIntoTheBucket) {
  const std::string program =
      kStart + "a = Exp(x)\nb = Exp(y)\ns, = AllReduce(a, b) " + kAttrs + kUses + kEnd;
  EXPECT_EQ(Placed(program), program + "arena s registered\npin a s 0\npin b s 64\njoined s\n");
}

TEST(PlaceBuckets, AViewIsPlacedThroughWhatItShows) {
  const std::string program = kStart + "a = Exp(y)\nb = Identity(a)\ns = AllReduce(b) " + kAttrs +
                              "u = Neg(s)\n" + kFeeds + "fetch u\n";
  EXPECT_EQ(Placed(program), program + "arena s registered\npin a s 0\njoined s\n");
}

// Fed, read by somebody else, and twice in the bucket: each gets a copy.
TEST(PlaceBuckets, WhatOthersReadIsCopiedIn) {
  EXPECT_EQ(Placed(kStart + "b = Exp(y)\ns, = AllReduce(x, b) " + kAttrs + kUses + "w = Neg(b)\n" +
                   kEnd + "fetch w\n"),
            kStart +
                "b = Exp(y)\n"
                "s/copy = _Copy(x)\n"
                "s/copy_1 = _Copy(b)\n"
                "s, = AllReduce(s/copy, s/copy_1) " +
                kAttrs + kUses + "w = Neg(b)\n" + kEnd +
                "fetch w\n"
                "arena s registered\npin s/copy s 0\npin s/copy_1 s 64\njoined s\n");
}

TEST(PlaceBuckets, WhatLeavesTheStepIsCopiedOut) {
  EXPECT_EQ(Placed(kStart + "a = Exp(x)\ns = AllReduce(a) " + kAttrs + kFeeds + "fetch s\n"),
            kStart + "a = Exp(x)\ns = AllReduce(a) " + kAttrs + "s/copy = _Copy(s)\n" + kFeeds +
                "fetch s/copy\n"
                "arena s registered\npin a s 0\njoined s\n");
}

// The values of a bucket of unknown size are packed by its kernel.
TEST(PlaceBuckets, UnknownShapesStayWhereTheyAre) {
  const std::string program =
      "x = Placeholder() {dtype=float32, shape=[?]}\na = Exp(x)\ns = AllReduce(a) " + kAttrs +
      "u = Neg(s)\nfeed x\nfetch u\n";
  EXPECT_EQ(Placed(program), program);
}

}  // namespace
}  // namespace tutti
