#include <gtest/gtest.h>

#include "tutti/compile/passes/passes.h"
#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

std::string Fused(std::string_view text) {
  RegisterCpuKernels();
  auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  const auto fused = FuseUpdates(*std::move(program), {});
  return fused.ok() ? ToText(*fused) : std::string(MessageOf(fused.status()));
}

std::string Declare(std::string_view name, std::string_view shape) {
  return fmt::format("{} = Variable() {{dtype=float32, shape={}}}\n", name, shape);
}

std::string Bucket(std::string_view name, std::string_view values) {
  return fmt::format(
      "{} = AllReduce({}) {{algorithm=\"\", group=\"\", key=\"\", wire=\"as-is\"}}\n", name,
      values);
}

const std::string kStart =
    "rate = Placeholder() {dtype=float32, shape=[]}\n"
    "ga = Placeholder() {dtype=float32, shape=[4]}\n"
    "gb = Placeholder() {dtype=float32, shape=[2, 3]}\n" +
    Declare("a", "[4]") + Declare("b", "[2, 3]");
const std::string kFeeds = "feed rate\nfeed ga\nfeed gb\n";

TEST(FuseUpdates, GroupsSmallUpdatesOfOneKind) {
  EXPECT_EQ(Fused(kStart +
                  "ua = ApplyGradientDescent(a, rate, ga)\n"
                  "ub = ApplyGradientDescent(b, rate, gb)\n"
                  "all = NoOp() ^ua ^ub\n" +
                  kFeeds + "target all\n"),
            kStart +
                "ua_fused = _FusedApplyGradientDescent(rate, rate, a, ga, b, gb) {scaled=false}\n"
                "all = NoOp() ^ua_fused\n" +
                kFeeds + "target all\n");
}

TEST(FuseUpdates, KeepsSlotsAndAttributes) {
  const std::string start = kStart + Declare("ma", "[4]") + Declare("mb", "[2, 3]") +
                            "scale = Placeholder() {dtype=float32, shape=[]}\n";
  EXPECT_EQ(Fused(start +
                  "ua = ApplyMomentum(a, ma, rate, ga, scale) {momentum=0.5}\n"
                  "ub = ApplyMomentum(b, mb, rate, gb, scale) {momentum=0.5}\n" +
                  kFeeds + "feed scale\ntarget ua, ub\n"),
            start +
                "ua_fused = _FusedApplyMomentum(rate, scale, a, ma, ga, b, mb, gb) "
                "{momentum=0.5, nesterov=false, scaled=true}\n" +
                kFeeds + "feed scale\ntarget ua_fused\n");
}

// Each of these programs must come out as it went in.
TEST(FuseUpdates, LeavesAloneWhatDiffers) {
  const std::string other_rate = kStart +
                                 "rate2 = Identity(rate)\n"
                                 "ua = ApplyGradientDescent(a, rate, ga)\n"
                                 "ub = ApplyGradientDescent(b, rate2, gb)\n" +
                                 kFeeds + "target ua\ntarget ub\n";
  const std::string used = kStart +
                           "ua = ApplyGradientDescent(a, rate, ga)\n"
                           "ub = ApplyGradientDescent(b, rate, gb)\n" +
                           kFeeds + "fetch ua\ntarget ub\n";
  const std::string one_after_the_other = kStart +
                                          "ua = ApplyGradientDescent(a, rate, ga)\n"
                                          "later = Identity(gb) ^ua\n"
                                          "ub = ApplyGradientDescent(b, rate, later)\n" +
                                          kFeeds + "target ub\n";
  const std::string same_variable = kStart +
                                    "u1 = ApplyGradientDescent(a, rate, ga)\n"
                                    "u2 = ApplyGradientDescent(a, rate, ga)\n" +
                                    kFeeds + "target u1\ntarget u2\n";
  const std::string buckets = kStart + Bucket("sa", "ga") + Bucket("sb", "gb") +
                              "ua = ApplyGradientDescent(a, rate, sa)\n"
                              "ub = ApplyGradientDescent(b, rate, sb)\n" +
                              kFeeds + "target ua\ntarget ub\n";
  for (const std::string& text : {other_rate, used, one_after_the_other, same_variable, buckets}) {
    EXPECT_EQ(Fused(text), text);
  }
}

TEST(FuseUpdates, LargeUpdatesAreFusedOnlyWithinABucket) {
  const std::string start =
      "rate = Placeholder() {dtype=float32, shape=[]}\n"
      "ga = Placeholder() {dtype=float32, shape=[100000]}\n"
      "gb = Placeholder() {dtype=float32, shape=[100000]}\n" +
      Declare("a", "[100000]") + Declare("b", "[100000]");
  const std::string single = start +
                             "ua = ApplyGradientDescent(a, rate, ga)\n"
                             "ub = ApplyGradientDescent(b, rate, gb)\n" +
                             kFeeds + "target ua\ntarget ub\n";
  EXPECT_EQ(Fused(single), single);
  EXPECT_EQ(Fused(start + Bucket("s,", "ga, gb") +
                  "ua = ApplyGradientDescent(a, rate, s)\n"
                  "ub = ApplyGradientDescent(b, rate, s:1)\n" +
                  kFeeds + "target ua\ntarget ub\n"),
            start + Bucket("s,", "ga, gb") +
                "ua_fused = _FusedApplyGradientDescent(rate, rate, a, s, b, s:1) {scaled=false}\n" +
                kFeeds + "target ua_fused\n");
}

}  // namespace
}  // namespace tutti
