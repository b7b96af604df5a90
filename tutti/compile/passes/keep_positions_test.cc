#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

std::string After(std::string_view text) {
  RegisterCpuKernels();
  return TextAfter(KeepPositions, text);
}

// The text of a program as it is printed.
std::string Same(std::string_view text) {
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << MessageOf(program.status());
  return program.ok() ? ToText(*program) : "";
}

const std::string kWindow = "padding=\"VALID\", strides=[2, 2], window=[2, 2]";
const std::string kAttrs = " {" + kWindow + "}\n";
const std::string kStart =
    "c = Placeholder() {dtype=float32, shape=[2, 4, 6, 3]}\n"
    "dy = Placeholder() {dtype=float32, shape=[2, 2, 3, 3]}\n";
const std::string kFeeds = "feed c\nfeed dy\n";
const std::string kPooled = kStart + "x = Relu(c)\ny, = _MaxPoolWithPositions(x)" + kAttrs;
const std::string kGradAttrs =
    " {padding=\"VALID\", strides=[2, 2], window=[2, 2], x_shape=[2, 4, 6, 3]}\n";

TEST(KeepPositions, ThePoolingTellsItsGradientWhereTheMaximaWere) {
  EXPECT_EQ(After(kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs + "g = MaxPoolGrad(x, y, dy)" +
                  kAttrs + "z = Neg(g)\n" + kFeeds + "fetch y\nfetch z\n"),
            kPooled + "g = _MaxPoolGradWithPositions(dy, y:1)" + kGradAttrs + "z = Neg(g)\n" +
                kFeeds + "fetch y\nfetch z\n");
}

TEST(KeepPositions, TheMaskOfARelusGradientGoesBeforeThePooling) {
  for (const std::string relu : {"ReluGrad", "Relu6Grad"}) {
    EXPECT_EQ(After(kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs + "g = MaxPoolGrad(x, y, dy)" +
                    kAttrs + "m = " + relu + "(g, x)\nz = Neg(m)\n" + kFeeds + "fetch z\n"),
              kPooled + "m/pooled = " + relu +
                  "(dy, y)\n"
                  "m = _MaxPoolGradWithPositions(m/pooled, y:1)" +
                  kGradAttrs + "z = Neg(m)\n" + kFeeds + "fetch z\n");
  }
}

// What is fetched keeps its name, and the pooling's gradient reads x and y.
TEST(KeepPositions, AFetchedGradientIsMaskedButNeedsNoPositions) {
  EXPECT_EQ(After(kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs + "g = MaxPoolGrad(x, y, dy)" +
                  kAttrs + "m = ReluGrad(g, x)\n" + kFeeds + "fetch m\n"),
            kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs +
                "m/pooled = ReluGrad(dy, y)\n"
                "m = MaxPoolGrad(x, y, m/pooled)" +
                kAttrs + kFeeds + "fetch m\n");
}

TEST(KeepPositions, OtherReadersOfTheGradientKeepTheMaskBehindIt) {
  const std::string start = kPooled + "g = _MaxPoolGradWithPositions(dy, y:1)" + kGradAttrs;
  for (const std::string end : {
           "m = ReluGrad(g, x)\nn = Neg(g)\nz = Add(m, n)\n",  // another reader
           "m = ReluGrad(g, c)\nz = Neg(m)\n",                 // masked by something else
           "m = ReluGrad(x, g)\nz = Neg(m)\n",                 // it is what masks
           "m = TanhGrad(g, x)\nz = Neg(m)\n",                 // scales
       }) {
    EXPECT_EQ(After(kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs + "g = MaxPoolGrad(x, y, dy)" +
                    kAttrs + end + kFeeds + "fetch z\n"),
              start + end + kFeeds + "fetch z\n");
  }
}

// Each of these programs must come out as it went in.
TEST(KeepPositions, LeavesAloneWhatIsNotTheGradientOfThePooling) {
  const std::string pool = kStart + "x = Relu(c)\ny = MaxPool(x)" + kAttrs;
  const std::string end = "z = ReluGrad(g, x)\nw = Neg(z)\n" + kFeeds + "fetch w\n";
  const std::string inference = pool + kFeeds + "fetch y\n";
  const std::string other_y = pool + "u = Neg(y)\ng = MaxPoolGrad(x, u, dy)" + kAttrs + end;
  const std::string other_x = pool + "g = MaxPoolGrad(c, y, dy)" + kAttrs + end;
  const std::string other_window =
      pool + "g = MaxPoolGrad(x, y, dy) {padding=\"SAME\", strides=[2, 2], window=[2, 2]}\n" + end;
  for (const std::string& program : {inference, other_y, other_x, other_window}) {
    EXPECT_EQ(After(program), Same(program));
  }
}

TEST(KeepPositions, OnlyTheMaskMovesWherePositionsCannotBeTold) {
  const auto program = [](const std::string& dtype, const std::string& shape,
                          const std::string& pooled, const std::string& attrs, bool masked) {
    const std::string head = "x = Placeholder() {dtype=" + dtype + ", shape=" + shape +
                             "}\n"
                             "dy = Placeholder() {dtype=" +
                             dtype + ", shape=" + pooled + "}\ny = MaxPool(x)" + attrs;
    const std::string rest = "z = Neg(m)\nfeed x\nfeed dy\nfetch z\n";
    return masked
               ? head + "m/pooled = ReluGrad(dy, y)\nm = MaxPoolGrad(x, y, m/pooled)" + attrs + rest
               : head + "g = MaxPoolGrad(x, y, dy)" + attrs + "m = ReluGrad(g, x)\n" + rest;
  };
  const std::string wide = " {padding=\"VALID\", strides=[1, 1], window=[17, 16]}\n";
  struct Case {
    std::string dtype, shape, pooled, attrs;
  };
  for (const Case& c : {Case{"float64", "[2, 4, 6, 3]", "[2, 2, 3, 3]", kAttrs},
                        Case{"float32", "[?, 4, 6, 3]", "[?, 2, 3, 3]", kAttrs},
                        Case{"float32", "[1, 17, 17, 1]", "[1, 1, 2, 1]", wide}}) {
    EXPECT_EQ(After(program(c.dtype, c.shape, c.pooled, c.attrs, false)),
              Same(program(c.dtype, c.shape, c.pooled, c.attrs, true)));
  }
}

// It would be row-major, and nothing reorders positions.
TEST(KeepPositions, AGradientOfUnknownShapeIsLeftAsItIs) {
  const std::string program =
      "x = Placeholder() {dtype=float32, shape=[2, 4, 6, 3]}\n"
      "dy = Placeholder() {dtype=float32, shape=[?, 2, 3, 3]}\n"
      "y = MaxPool(x)" +
      kAttrs + "g = MaxPoolGrad(x, y, dy)" + kAttrs + "z = Neg(g)\nfeed x\nfeed dy\nfetch z\n";
  EXPECT_EQ(After(program), Same(program));
}

}  // namespace
}  // namespace tutti
