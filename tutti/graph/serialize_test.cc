#include "tutti/graph/serialize.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/io.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/random_graph.h"
#include "tutti/graph/text/format.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

std::string Bytes(const Graph& graph) { return ValueOrThrow(SerializeGraph(graph)); }

std::string ErrorOf(std::string_view bytes) {
  Graph graph;
  return std::string(MessageOf(ParseSerializedGraph(bytes, &graph)));
}

// Nodes that come from outside are counted before they are read: these are no nodes at all.
TEST(Serialize, TooManyNodesAreRefusedBeforeTheyAreRead) {
  Graph graph;
  std::vector<Tensor> beside;
  std::string bytes = ValueOrThrow(SerializeNodes(graph, 0, beside));
  for (int i = 0; i < 5; ++i) bytes += std::string("\x12\x02\x0a\x00", 4);
  EXPECT_EQ(MessageOf(ParseSerializedNodes(bytes, beside, 0, &graph, 4)),
            "the graph has 5 nodes; at most 4 are taken");
  EXPECT_EQ(graph.size(), 0);
  EXPECT_EQ(MessageOf(ParseSerializedNodes(bytes, beside, 0, &graph, 5)),
            "node 0 ( \"\"): it has no name");

  Graph some;
  Constant(some, 1.0f);
  Constant(some, 2.0f);
  const std::string two = ValueOrThrow(SerializeNodes(some, 0, beside));
  Graph grown;
  EXPECT_TRUE(ParseSerializedNodes(two, beside, 0, &grown, 2).ok());
  EXPECT_EQ(MessageOf(ParseSerializedNodes(two, beside, 2, &grown, 3)),
            "the graph has 4 nodes; at most 3 are taken");
}

RC_GTEST_PROP(Serialize, RandomGraphsComeBackEqualFromBothForms, (uint64_t seed)) {
  Graph graph;
  RandomGraph(seed).Fill(graph);

  Graph from_bytes;
  const std::string bytes = Bytes(graph);
  const absl::Status parsed = ParseSerializedGraph(bytes, &from_bytes);
  if (!parsed.ok()) RC_FAIL(std::string(MessageOf(parsed)));
  RC_ASSERT(GraphsEqual(graph, from_bytes));
  RC_ASSERT(Bytes(from_bytes) == bytes);

  Graph from_text;
  const std::string text = ToText(graph);
  const absl::Status read = ParseText(text, &from_text);
  if (!read.ok()) RC_FAIL(std::string(MessageOf(read)) + "\n" + text);
  RC_ASSERT(GraphsEqual(graph, from_text));
  RC_ASSERT(ToText(from_text) == text);
}

TEST(Serialize, AnEmptyGraphHasItsFormat) {
  Graph graph;
  Graph read;
  EXPECT_TRUE(ParseSerializedGraph(Bytes(graph), &read).ok());
  EXPECT_EQ(read.size(), 0);
  EXPECT_NE(ErrorOf("").find("the graph has format 0; this version reads format 1"),
            std::string::npos);
}

TEST(Serialize, TruncatedBytesAreErrors) {
  Graph graph;
  Constant(graph, Tensor::Vector<float>({1, 2, 3}), "c");
  NoOp(graph, "n");
  const std::string bytes = Bytes(graph);
  int errors = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    errors += !ErrorOf(bytes.substr(0, length)).empty();
  }
  // A cut between two nodes gives a shorter, valid graph: after the format and after each node.
  EXPECT_EQ(errors, int(bytes.size()) - 2);
  EXPECT_EQ(ErrorOf(bytes.substr(0, bytes.size() - 1)),
            std::to_string(bytes.size() - 1) +
                " bytes are no serialized graph: they are truncated or damaged, or nested too "
                "deep");
}

TEST(Serialize, ErrorsNameTheNode) {
  Graph graph;
  Constant(graph, Tensor::Vector<int8_t>({1, 2, 3}), "c");
  std::string bytes = Bytes(graph);
  const size_t op = bytes.find("Constant");
  EXPECT_EQ(ErrorOf(std::string(bytes).replace(op, 8, "Konstant")),
            "node 0 (Konstant \"c\"): there is no op \"Konstant\"");
  const size_t data = bytes.find("\x01\x02\x03");
  // Field 2 of the tensor holds its dimensions: one of 3, made 4.
  ASSERT_EQ(bytes[data - 3], 3);
  bytes[data - 3] = 4;
  EXPECT_EQ(ErrorOf(bytes),
            "node 0 (Constant \"c\"): attribute \"value\": a tensor of int8 [4] holds 3 bytes; "
            "expected 4");
}

TEST(Serialize, NestsSixtyFourDeepAndNoDeeper) {
  const auto nested = [](int depth) {
    auto graph = std::make_unique<Graph>();
    for (int i = 0; i < depth; ++i) {
      auto subgraph = std::make_shared<Subgraph>();
      subgraph->graph = std::move(graph);
      graph = std::make_unique<Graph>();
      graph->Add({.op = "NoOp", .attrs = {{"_b", std::shared_ptr<const Subgraph>(subgraph)}}});
    }
    return graph;
  };
  Graph read;
  const auto deep = nested(64);
  const absl::Status status = ParseSerializedGraph(Bytes(*deep), &read);
  EXPECT_TRUE(status.ok()) << MessageOf(status);
  EXPECT_TRUE(GraphsEqual(*deep, read));
  EXPECT_NE(ErrorOf(Bytes(*nested(65))), "");
  EXPECT_NE(ErrorOf(Bytes(*nested(80))), "");
}

TEST(Serialize, AMillionNodesInAChain) {
  Graph graph;
  const Node* last = NoOp(graph, "n");
  for (int i = 1; i < testing::AMillion(); ++i) {
    NodeSpec spec{.op = "NoOp", .name = "n" + std::to_string(i), .control_inputs = {last}};
    last = graph.Add(std::move(spec));
  }
  Graph read;
  ASSERT_TRUE(ParseSerializedGraph(Bytes(graph), &read).ok());
  EXPECT_TRUE(GraphsEqual(graph, read));
}

TEST(Serialize, TheClientApiThrows) {
  Graph graph;
  EXPECT_THROW(ReadGraphBytes("nonsense", graph), Error);
  Graph source;
  NoOp(source, "n");
  Graph read;
  ReadGraphBytes(GraphToBytes(source), read);
  EXPECT_TRUE(GraphsEqual(source, read));
  EXPECT_THROW(ReadGraphBytes(GraphToBytes(source), read), Error);  // not empty any more
}

}  // namespace
}  // namespace tutti
