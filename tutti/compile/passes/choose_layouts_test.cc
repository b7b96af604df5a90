#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/op_def.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Which layouts oneDNN likes depends on the machine, so the pass is tested with kernels that always
// wish for the same.
class Nothing final : public Kernel {
 public:
  absl::Status Compute(KernelContext&) override { return absl::OkStatus(); }
};

void AddTestOps() {
  [[maybe_unused]] static const bool done = [] {
    for (const char* name : {"TestConv", "TestNeg", "TestPlain"}) {
      OpRegistry::Global().Add({.name = name, .inputs = {"xs..."}, .infer = [](InferContext& c) {
                                  c.SetOutput(0, c.dtype(0), c.shape(0));
                                  return absl::OkStatus();
                                }});
      KernelDef def = {
          .op = name, .kind = "cpu", .make = [] { return std::make_unique<Nothing>(); }};
      const std::string_view op = name;
      if (op == "TestConv") {
        def.layout_wish = [](const Node& node, std::span<const ValueType>,
                             std::span<const ValueType>) {
          return LayoutWish{std::vector<Layout>(size_t(node.num_inputs()), Layout("aDbc8d")),
                            {Layout("aDbc8d")}};
        };
      }
      def.any_layout = op == "TestNeg";
      KernelRegistry::Global().Add(std::move(def));
    }
    return true;
  }();
}

std::string After(std::string_view text) {
  RegisterCpuKernels();
  AddTestOps();
  return TextAfter(ChooseLayouts, text);
}

TEST(ChooseLayouts, AChainStaysBlockedAndEndsRowMajor) {
  EXPECT_EQ(After(R"(
x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}
v = Placeholder() {dtype=float32, shape=[8]}
a = TestConv(x)
b = TestNeg(a)
c = BiasAdd(b, v)
d = TestConv(c)
y = TestPlain(d)
feed x
feed v
fetch y
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}\n"
            "v = Placeholder() {dtype=float32, shape=[8]}\n"
            "x/reorder = _Reorder(x)\n"
            "a = TestConv(x/reorder)\n"
            "b = TestNeg(a)\n"
            "c = BiasAdd(b, v)\n"
            "d = TestConv(c)\n"
            "d/reorder = _Reorder(d)\n"
            "y = TestPlain(d/reorder)\n"
            "feed x\nfeed v\nfetch y\n"
            "layout x/reorder aDbc8d\n"
            "layout a aDbc8d\n"
            "layout b aDbc8d\n"
            "layout c aDbc8d\n"
            "layout d aDbc8d\n");
}

TEST(ChooseLayouts, WhatIsFetchedIsRowMajor) {
  const std::string text = After(R"(
x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}
a = TestConv(x)
b = TestNeg(a)
feed x
fetch a
fetch b
)");
  EXPECT_THAT(text, HasSubstr("a = TestConv(x/reorder)\n"));
  EXPECT_THAT(text, HasSubstr("b = TestNeg(a)\n"));
  EXPECT_THAT(text, EndsWith("fetch b\nlayout x/reorder aDbc8d\n"));
}

TEST(ChooseLayouts, ReordersOnceForSeveralReaders) {
  const std::string text = After(R"(
x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}
a = TestConv(x)
p = TestPlain(a)
q = TestPlain(a)
feed x
fetch p
fetch q
)");
  EXPECT_THAT(text, HasSubstr("p = TestPlain(a/reorder)"));
  EXPECT_THAT(text, HasSubstr("q = TestPlain(a/reorder)"));
  EXPECT_THAT(text, Not(HasSubstr("reorder_1")));
}

// The positions of maxima lie as the pooling left them; dy comes to them.
TEST(ChooseLayouts, AGradientFollowsThePositionsOfItsPooling) {
  const std::string program = R"(
x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}
dy = Placeholder() {dtype=float32, shape=[2, 2, 2, 8]}
a = TestConv(x)
b = TestConv(dy)
p = _MaxPoolWithPositions(SOURCE)
g = _MaxPoolGradWithPositions(GRADIENT, p:1) {x_shape=[2, 4, 4, 8]}
y = TestPlain(g)
feed x
feed dy
fetch y
)";
  const auto with = [&](const std::string& source, const std::string& gradient) {
    std::string text = program;
    text.replace(text.find("SOURCE"), 6, source);
    text.replace(text.find("GRADIENT"), 8, gradient);
    return After(text);
  };
  const std::string blocked = with("a", "dy");
  EXPECT_THAT(blocked, HasSubstr("= _MaxPoolWithPositions(a)"));
  EXPECT_THAT(blocked, HasSubstr("layout dy/reorder aDbc8d\n"));
  EXPECT_THAT(blocked, HasSubstr("layout p aDbc8d\nlayout p:1 aDbc8d\nlayout g aDbc8d\n"));
  EXPECT_THAT(blocked, HasSubstr("g = _MaxPoolGradWithPositions(dy/reorder, p:1) "));
  const std::string row_major = with("x", "b");
  EXPECT_THAT(row_major, HasSubstr("g = _MaxPoolGradWithPositions(b/reorder, p:1) {"));
  EXPECT_THAT(row_major, Not(HasSubstr("layout b/reorder")));
  EXPECT_THAT(row_major, Not(HasSubstr("layout p")));
  EXPECT_THAT(row_major, Not(HasSubstr("layout g")));
}

TEST(ChooseLayouts, SpreadOperandsForceRowMajor) {
  const std::string text = After(R"(
x = Placeholder() {dtype=float32, shape=[2, 4, 4, 8]}
v = Placeholder() {dtype=float32, shape=[8]}
s = Placeholder() {dtype=float32, shape=[]}
a = TestConv(x)
p = TestNeg(a, v)
q = TestNeg(a, s)
r = TestPlain(p, q)
feed x
feed v
feed s
fetch r
)");
  EXPECT_THAT(text, HasSubstr("p = TestNeg(a/reorder, v)\n"));
  EXPECT_THAT(text, HasSubstr("q = TestNeg(a, s)\n"));
  EXPECT_THAT(text, HasSubstr("layout q aDbc8d\n"));
  EXPECT_THAT(text, Not(HasSubstr("layout p")));
  EXPECT_THAT(text, Not(HasSubstr("layout a/reorder")));
}

}  // namespace
}  // namespace tutti
