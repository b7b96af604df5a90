#include "tutti/graph/text/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/graph/build.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/io.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/source.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

std::string ErrorOf(std::string_view text) {
  Graph graph;
  return std::string(MessageOf(ParseText(text, &graph)));
}

// The text that reading and writing `text` gives.
std::string Again(std::string_view text, const TextOptions& options = {}) {
  Graph graph;
  const absl::Status status = ParseText(text, &graph);
  return status.ok() ? ToText(graph, options) : std::string(MessageOf(status));
}

void ExpectRoundTrip(const Graph& graph) {
  const std::string text = ToText(graph);
  Graph read;
  const absl::Status status = ParseText(text, &read);
  ASSERT_TRUE(status.ok()) << MessageOf(status) << "\n" << text;
  EXPECT_TRUE(GraphsEqual(graph, read)) << text << "\n--- read as ---\n" << ToText(read);
}

TEST(TextFormat, WritesOneNodeALine) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 784}, "x");
  const Output w = Placeholder(graph, kFloat32, {784, 10}, "w");
  const Node* init = NoOp(graph, "init");
  ControlScope after(graph, {init});
  DeviceScope on(graph, "/cpu:0");
  graph.Add(
      {.op = "MatMul",
       .name = "dense/y",
       .inputs = {x, w},
       .attrs = {{"transpose_b", false}, {"_cost", 2.0}, {"_dims", std::vector<int64_t>{3}}}});
  EXPECT_EQ(ToText(graph),
            "x = Placeholder() {dtype=float32, shape=[?, 784]}\n"
            "w = Placeholder() {dtype=float32, shape=[784, 10]}\n"
            "init = NoOp()\n"
            "dense/y = MatMul(x, w) {_cost=float 2.0, _dims=ints [3], transpose_b=false} ^init "
            "@/cpu:0\n");
  ExpectRoundTrip(graph);
  EXPECT_EQ(ToText(graph, {.types = true}),
            "x = Placeholder() {dtype=float32, shape=[?, 784]}  # float32 [?, 784]\n"
            "w = Placeholder() {dtype=float32, shape=[784, 10]}  # float32 [784, 10]\n"
            "init = NoOp()\n"
            "dense/y = MatMul(x, w) {_cost=float 2.0, _dims=ints [3], transpose_b=false} ^init "
            "@/cpu:0  # float32 [?, 10]\n");
}

TEST(TextFormat, ReadsAnyOrderSpacesAndComments) {
  EXPECT_EQ(Again("# a comment\n"
                  "y=MatMul( x ,w:0 )^n   # ends here\n"
                  "\n"
                  "  n = NoOp() @ \"/a b\"\r\n"
                  "w = Placeholder() {shape=[...], dtype=float32}\n"
                  "x = Placeholder() {dtype=float32, shape=[]} ^w"),
            "line 2: MatMul \"y\": a is float32 []; expected 2 dimensions; inputs: Placeholder "
            "\"x\", Placeholder \"w\"");
  EXPECT_EQ(Again("# a comment\n"
                  "y=MatMul( x ,w:0 )^n   # ends here\n"
                  "\n"
                  "  n = NoOp() @ \"/a b\"\r\n"
                  "w = Placeholder() {shape=[...], dtype=float32}\n"
                  "x = Placeholder() {dtype=float32, shape=[2, ?]} ^w"),
            "w = Placeholder() {dtype=float32, shape=[...]}\n"
            "x = Placeholder() {dtype=float32, shape=[2, ?]} ^w\n"
            "n = NoOp() @\"/a b\"\n"
            "y = MatMul(x, w) ^n\n");
  EXPECT_EQ(Again(""), "");
  EXPECT_EQ(Again("\n # nothing\n"), "");
}

TEST(TextFormat, KeepsEveryValueToTheBit) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double other_nan = std::bit_cast<double>(uint64_t{0xfff4000000000001});
  Graph graph;
  graph.Add({.op = "NoOp",
             .attrs = {{"_b", true},
                       {"_double", 0.1},
                       {"_doubles", std::vector<double>{1, -0.0, nan, INFINITY, 5e-324, other_nan}},
                       {"_dtype", kBFloat16},
                       {"_empty", std::vector<int64_t>{}},
                       {"_empty_strings", std::vector<std::string>{}},
                       {"_int", std::numeric_limits<int64_t>::min()},
                       {"_invalid", DType::kInvalid},
                       {"_minus", -INFINITY},
                       {"_none", Tensor()},
                       {"_shape", Shape{0, -1}},
                       {"_string", "a\"\\\n\t\r\x01\x7f{}#é" + std::string(1, '\0')},
                       {"_strings", std::vector<std::string>{"", "x, y]"}},
                       {"_unknown", Shape::UnknownRank()},
                       {"_very odd \"name\"", int64_t{-7}},
                       {"_whole", 1e300}}});
  ExpectRoundTrip(graph);
}

TEST(TextFormat, KeepsTensorsOfEveryTypeToTheBit) {
  Graph graph;
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3}, Shape{100}, Shape{5, 7, 2}}) {
      for (const bool same : {false, true}) {
        Tensor tensor = Tensor::Zeros(dtype, shape);
        auto* bytes = static_cast<uint8_t*>(tensor.raw());
        for (size_t i = 0; i < tensor.bytes(); ++i) {
          const size_t position = same ? i % SizeOf(dtype) : i;
          bytes[i] = uint8_t(position * 151 + 77);
          if (dtype == kBool) bytes[i] &= 1;
        }
        Constant(graph, tensor);
      }
    }
  }
  const float odd_nan = std::bit_cast<float>(0x7fa00001);
  Constant(graph, Tensor::Vector<float>({NAN, -NAN, odd_nan, INFINITY, -INFINITY, -0.0f, 0.1f,
                                         1e-45f, 3.4028235e38f, 16777216}));
  Constant(graph, Tensor::Vector<uint64_t>({0, ~uint64_t{0}}));
  Constant(graph, Tensor::Vector<int8_t>({-128, 127}));
  ExpectRoundTrip(graph);
  EXPECT_NE(ToText(graph).find("nan:7fa00001"), std::string::npos);
}

TEST(TextFormat, WritesTensorsReadably) {
  Graph graph;
  Constant(graph, Tensor::Of<float>({2, 2}, {1, -0.5, 1e-8, INFINITY}), "a");
  Constant(graph, Tensor::Zeros(kFloat32, {784, 10}), "b");
  Constant(graph, Tensor::Vector<bool>({true, false}), "c");
  EXPECT_EQ(ToText(graph),
            "a = Constant() {value=float32 [2, 2] {1, -0.5, 1e-08, inf}}\n"
            "b = Constant() {value=float32 [784, 10] {0, ...}}\n"
            "c = Constant() {value=bool [2] {true, false}}\n");
}

TEST(TextFormat, KeepsNestedSubgraphs) {
  Graph graph;
  auto inner = std::make_shared<Subgraph>();
  inner->graph = std::make_unique<Graph>();
  const Output arg =
      inner->graph
          ->Add({.op = "Arg", .name = "a", .attrs = {{"dtype", kInt32}, {"shape", Shape{}}}})
          ->output();
  NoOp(*inner->graph, "args");
  inner->args = {arg};
  inner->results = {arg, arg};
  auto outer = std::make_shared<Subgraph>();
  outer->graph = std::make_unique<Graph>();
  outer->graph->Add({.op = "NoOp",
                     .name = "n",
                     .attrs = {{"_then", std::shared_ptr<const Subgraph>(inner)},
                               {"_zero", std::shared_ptr<const Subgraph>()}}});
  graph.Add(
      {.op = "NoOp", .name = "if", .attrs = {{"_body", std::shared_ptr<const Subgraph>(outer)}}});
  EXPECT_EQ(ToText(graph),
            "if = NoOp() {_body={\n"
            "  n = NoOp() {_then={\n"
            "    a = Arg() {dtype=int32, shape=[]}\n"
            "    args = NoOp()\n"
            "    args a\n"
            "    results a, a\n"
            "  }, _zero={}}\n"
            "  args\n"
            "  results\n"
            "}}\n");
  ExpectRoundTrip(graph);
}

TEST(TextFormat, NestsSixtyFourDeepAndNoDeeper) {
  const auto nested = [](int depth) {
    std::string text;
    for (int i = 0; i < depth; ++i) text += "n = NoOp() {_b={\n";
    for (int i = 0; i < depth; ++i) text += "}}\n";
    return text;
  };
  EXPECT_EQ(ErrorOf(nested(64)), "");
  EXPECT_EQ(ErrorOf(nested(65)),
            "line 65, column 16: expected subgraphs nested at most 64 deep, found '{'");
  EXPECT_NE(ErrorOf(nested(100000)), "");
}

TEST(TextFormat, ErrorsSayWhereWhatAndWhatInstead) {
  const std::string x = "x = Placeholder() {dtype=float32, shape=[2, 2]}\n";
  EXPECT_EQ(ErrorOf(x + "y = Frobnicate(x)"), "line 2, column 5: there is no op \"Frobnicate\"");
  EXPECT_EQ(ErrorOf(x + "y = MatMul(x, z)"), "line 2, column 15: there is no node \"z\"");
  EXPECT_EQ(ErrorOf(x + x), "line 2, column 1: the name \"x\" is taken by the node of line 1");
  EXPECT_EQ(ErrorOf(x + "y = MatMul(x, x:1)"),
            "line 2, column 15: Placeholder \"x\" has 1 output; there is no output 1");
  EXPECT_EQ(ErrorOf(x + "y, = MatMul(x, x)"),
            "line 2, column 1: MatMul \"y\" has 1 output; a comma after the name means several");
  EXPECT_EQ(ErrorOf(x + "y = MatMul(x)"),
            "line 2: MatMul \"y\": 1 inputs given; expected 2; inputs: Placeholder \"x\"");
  EXPECT_EQ(ErrorOf("y = NoOp() {colour=1}"),
            "line 1, column 13: the op NoOp has no attribute \"colour\"");
  EXPECT_EQ(ErrorOf("y = NoOp() {_a=1, _a=1}"),
            "line 1, column 19: attribute \"_a\" is given twice");
  EXPECT_EQ(ErrorOf("y = MatMul(x, x) {transpose_a=1}"),
            "line 1, column 31: expected true or false (bool), found '1'");
  EXPECT_EQ(ErrorOf("y = Placeholder() {dtype=float33}"),
            "line 1, column 26: expected a dtype such as float32, found 'float33'");
  EXPECT_EQ(ErrorOf("y = Placeholder() {shape=[-1]}"),
            "line 1, column 27: dimension -1 is negative; an unknown dimension is written '?'");
  EXPECT_EQ(ErrorOf("y = Placeholder() {shape=[4611686018427387904, 4]}"),
            "line 1, column 26: the product of the dimensions of shape [4611686018427387904, 4] "
            "passes 2^63");
  EXPECT_EQ(ErrorOf("y = Constant() {value=int8 [2] {1, 300}}"),
            "line 1, column 36: expected an integer within its type's range (int8), found '300'");
  EXPECT_EQ(ErrorOf("y = Constant() {value=int8 [2] {1}}"),
            "line 1, column 33: 1 elements given; shape [2] has 2");
  EXPECT_EQ(ErrorOf("y = Constant() {value=int8 [?] {1}}"),
            "line 1, column 28: the shape of a tensor must be known, found [?]");
  EXPECT_EQ(ErrorOf("y = Constant() {value=int8 [1000000000000] {1, ...}}"),
            "line 1, column 45: the repeated elements of the text need more than 256 MB");
  EXPECT_EQ(ErrorOf("y = Constant() {value=float32 [1000000000000] base64 \"AAAA\"}"),
            "line 1, column 54: the data are too short for float32 [1000000000000]");
  EXPECT_EQ(ErrorOf("y = Constant() {value=int8 [3] base64 \"AA=A\"}"),
            "line 1, column 39: expected base64 of 3 bytes for int8 [3]");
  EXPECT_EQ(ErrorOf("y = Constant() {value=bool [3] base64 \"AAEC\"}"),
            "line 1, column 39: a bool must be 0 or 1");
  EXPECT_EQ(ErrorOf("y = NoOp() {_a=\"b\\q\"}"),
            "line 1, column 18: unknown escape; expected \\\\ \\\" \\n \\t \\r or \\xHH");
  EXPECT_EQ(
      ErrorOf("y = NoOp() {_a=\"b"),
      "line 1, column 16: the string is not closed before the end of the line; expected '\"'");
  EXPECT_EQ(
      ErrorOf("y = NoOp() nonsense"),
      "line 1, column 12: expected '{', '^', '@' or the end of the line after the node, found "
      "'nonsense'");
  EXPECT_EQ(ErrorOf("-y = NoOp()").substr(0, 32), "line 1: NoOp: \"-y\" is no node na");
}

TEST(TextFormat, TruncatedLinesAreErrors) {
  EXPECT_EQ(ErrorOf("y"),
            "line 1, column 2: expected '=' after the node's name, found the end of "
            "the text");
  EXPECT_EQ(ErrorOf("y =\n"),
            "line 1, column 4: expected the name of an op, found the end of the "
            "line");
  EXPECT_EQ(ErrorOf("y = NoOp(\n)"),
            "line 1, column 10: expected the name of an input, found the end of the line");
  const std::string whole =
      "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
      "y = MatMul(x, x) {transpose_a=true, _s=\"a\\x41\", _b={\n"
      "  c = Constant() {value=float32 [3] {1, nan, -inf}}\n"
      "  results c\n"
      "}} ^x @/cpu:0\n";
  ASSERT_EQ(ErrorOf(whole), "");
  for (size_t length = 0; length < whole.size(); ++length) {
    ErrorOf(whole.substr(0, length));  // a prefix may be valid, it must not crash
  }
}

TEST(TextFormat, CyclesAreErrorsThatNameTheNodes) {
  EXPECT_EQ(ErrorOf("a = NoOp() ^b\nb = NoOp() ^c\nc = NoOp() ^a\n"),
            "line 1, column 1: the nodes form a cycle: \"a\" needs \"b\" needs \"c\" needs \"a\"");
  EXPECT_EQ(ErrorOf("x = NoOp() ^a\na = MatMul(a, a)\n"),
            "line 2, column 1: the nodes form a cycle: \"a\" needs \"a\"");
  std::string ring;
  for (int i = 0; i < 100; ++i) ring += fmt::format("n{} = NoOp() ^n{}\n", i, (i + 1) % 100);
  EXPECT_NE(ErrorOf(ring).find("\"n7\" needs (92 more) \"n0\""), std::string::npos)
      << ErrorOf(ring);
}

std::string Chain(int nodes, bool forwards) {
  std::string text = forwards ? "n0 = NoOp()\n" : "";
  for (int i = 1; i < nodes; ++i) {
    const int to = forwards ? i : nodes - i;
    text += fmt::format("n{} = NoOp() ^n{}\n", to, to - 1);
  }
  return forwards ? text : text + "n0 = NoOp()\n";
}

TEST(TextFormat, ReadsAMillionNodesInAChain) {
  const std::string text = Chain(testing::AMillion(), true);
  EXPECT_EQ(Again(text), text);
}

TEST(TextFormat, ReadsALongChainBackwards) {
  EXPECT_EQ(Again(Chain(200'000, false)), Chain(200'000, true));
}

TEST(TextFormat, NeedsAnEmptyGraph) {
  Graph graph;
  NoOp(graph);
  EXPECT_EQ(ParseText("x = NoOp()", &graph).code(), absl::StatusCode::kFailedPrecondition);
  Graph scoped;
  NameScope scope(scoped, "layer");
  EXPECT_EQ(ParseText("x = NoOp()", &scoped).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TextFormat, TheClientApiThrows) {
  Graph graph;
  EXPECT_THROW(ReadTextGraph("x = Nope()", graph), Error);
  ReadTextGraph("x = NoOp()", graph);
  EXPECT_EQ(GraphToText(graph), "x = NoOp()\n");
}

}  // namespace
}  // namespace tutti
