#include "tutti/graph/check_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/io.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text/format.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kX = "x = Placeholder() {dtype=float32, shape=[2]}\n";

// What the client's readers say of a text, and of the bytes of the same graph.
std::string ErrorOf(const std::string& lines) {
  const std::string text = std::string(kX) + lines;
  Graph graph, from_text, from_bytes;
  const absl::Status parsed = ParseText(text, &graph);
  EXPECT_TRUE(parsed.ok()) << MessageOf(parsed);
  std::string error = "no error";
  try {
    ReadTextGraph(text, from_text);
  } catch (const Error& caught) {
    error = caught.what();
  }
  try {
    ReadGraphBytes(GraphToBytes(graph), from_bytes);
    EXPECT_EQ(error, "no error");
  } catch (const Error& caught) {
    EXPECT_EQ(error, caught.what());
  }
  return error;
}

TEST(CheckUserGraph, RefusesWhatOnlyTheCompilerWrites) {
  EXPECT_THAT(ErrorOf("r = Recv() {dtype=float32, key=\"k\", shape=[2]}"),
              HasSubstr("Recv \"r\": only the compiler makes Recv nodes"));
  for (const char* note : {"_pinned=strings [\"a@0\"]", "_pinned=3", "_arena_kind=\"registered\"",
                           "_placed=true", "_output_layouts=strings [\"Ab8a\"]",
                           "_input_layouts=strings [\"Ab8a\"]", "_variable=\"w\"", "_a=1"}) {
    EXPECT_THAT(ErrorOf(std::string("y = Neg(x) {") + note + "}"), HasSubstr("a note of the"))
        << note;
  }
  EXPECT_THAT(ErrorOf("y = Neg(x) {_state_update_of=3}"), HasSubstr("is a int; expected string"));
}

TEST(CheckUserGraph, RefusesArgsThatStandForNothing) {
  EXPECT_THAT(ErrorOf("a = Arg() {dtype=float32, shape=[2]}\ny = Neg(a)"),
              HasSubstr("Arg \"a\": an Arg stands for an input of If or While"));
  const std::string If = "p = Constant() {value=bool [] {true}}\nf = If(p, x) {else_branch={";
  const std::string arg = " = Arg() {dtype=float32, shape=[2]}\n";
  const std::string plain = "\na" + arg + "args a\nresults a\n}";
  EXPECT_EQ(ErrorOf(If + plain + ", then_branch={" + plain + "}"), "no error");
  EXPECT_THAT(
      ErrorOf(If + plain + ", then_branch={\na" + arg + "b" + arg + "args a\nresults b\n}}"),
      HasSubstr("Arg \"b\" is not among the args"));
  EXPECT_THAT(ErrorOf(If + plain +
                      ", then_branch={\na = Arg() {_variable=\"v\", dtype=float32, shape=[2]}\n"
                      "args a\nresults a\n}}"),
              HasSubstr("stands for the variable \"v\" but is given another value"));
}

TEST(CheckUserGraph, AcceptsWhatProgramsBuild) {
  Graph graph;
  const Output w = Variable(graph,
                            {.shape = {2},
                             .build =
                                 [](Graph& g) {
                                   return Constant(g, Tensor::Vector<float>({1, 2}));
                                 }},
                            "w");
  const Output p = Placeholder(graph, kBool, Shape{}, "p");
  If(
      p, [&] { return std::vector<Output>{AssignAdd(w, w)}; },
      [&] { return std::vector<Output>{w}; });
  Graph from_text, from_bytes;
  ReadTextGraph(GraphToText(graph), from_text);
  ReadGraphBytes(GraphToBytes(graph), from_bytes);
  EXPECT_TRUE(GraphsEqual(graph, from_text));
  EXPECT_TRUE(GraphsEqual(graph, from_bytes));
}

}  // namespace
}  // namespace tutti
