#include "tutti/compile/extract.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"
#include "tutti/graph/text/format.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

struct NamedFeed {
  std::string name;
  int index = 0;
  ValueType type;
};

// The text of what is extracted of the graph in `text`, or the error.
std::string TextOf(std::string_view text, const std::vector<NamedFeed>& feeds,
                   const std::vector<std::string>& fetches,
                   const std::vector<std::string>& targets = {}) {
  Graph graph;
  const absl::Status parsed = ParseText(text, &graph);
  EXPECT_TRUE(parsed.ok()) << parsed;
  StepRequest request;
  for (const NamedFeed& feed : feeds) {
    request.feeds.push_back({graph.Find(feed.name)->output(feed.index), feed.type});
  }
  for (const auto& name : fetches) request.fetches.push_back(graph.Find(name)->output());
  for (const auto& name : targets) request.targets.push_back(graph.Find(name));
  const auto program = Extract(graph, request);
  return program.ok() ? ToText(*program) : std::string(MessageOf(program.status()));
}

constexpr std::string_view kGraph = R"(
x = Placeholder() {dtype=float32, shape=[?, 2]}
w = Placeholder() {dtype=float32, shape=[2, 4]}
y = MatMul(x, w)
parts, = Split(y) {axis=1, num=2}
a = Neg(parts)
b = Neg(parts:1)
sum = Add(a, b)
other = Exp(x)
)";

// The node that another is colocated with may not be part of the step: then it asks for the same.
TEST(Extract, KeepsTheWishOfANodeThatIsNotThere) {
  constexpr std::string_view kColocated = R"(
v = Variable() {dtype=float32, shape=[]} @/cpu:1
u = AssignAdd(v, v)
a = NoOp() @/cpu:2
b = NoOp() {_colocate="a"}
c = NoOp() {_colocate="b"}
d = NoOp() {_colocate="u"}
)";
  EXPECT_EQ(TextOf(kColocated, {}, {}, {"c"}), "c = NoOp() @/cpu:2\ntarget c\n");
  EXPECT_EQ(TextOf(kColocated, {}, {}, {"c", "b"}),
            "b = NoOp() @/cpu:2\nc = NoOp() {_colocate=\"b\"}\ntarget c\ntarget b\n");
  EXPECT_EQ(TextOf(kColocated, {}, {}, {"d"}), "d = NoOp() @/cpu:1\ntarget d\n");
  EXPECT_EQ(TextOf(kColocated, {}, {"v"}, {"d"}),
            "v = Variable() {dtype=float32, shape=[]} @/cpu:1\n"
            "d = NoOp() {_colocate=\"v\"}\nfetch v\ntarget d\n");
}

TEST(Extract, KeepsWhatIsNeededWithTheShapesOfTheFeeds) {
  EXPECT_EQ(TextOf(kGraph, {{"x", 0, {kFloat32, {3, 2}}}, {"w", 0, {kFloat32, {2, 4}}}}, {"a"}),
            "x = Placeholder() {dtype=float32, shape=[3, 2]}\n"
            "w = Placeholder() {dtype=float32, shape=[2, 4]}\n"
            "y = MatMul(x, w)\n"
            "parts, = Split(y) {axis=1, num=2}\n"
            "a = Neg(parts)\n"
            "feed x\n"
            "feed w\n"
            "fetch a\n");
}

TEST(Extract, AFedNodeNeedsNothing) {
  EXPECT_EQ(TextOf(kGraph, {{"y", 0, {kFloat32, {3, 4}}}}, {"b"}),
            "y = Placeholder() {dtype=float32, shape=[3, 4]}\n"
            "parts, = Split(y) {axis=1, num=2}\n"
            "b = Neg(parts:1)\n"
            "feed y\n"
            "fetch b\n");
}

TEST(Extract, OneOfSeveralOutputsMayBeFed) {
  EXPECT_EQ(
      TextOf(kGraph, {{"parts", 1, {kFloat32, {3, 2}}}, {"y", 0, {kFloat32, {3, 4}}}}, {"sum"}),
      "parts.feed1 = Placeholder() {dtype=float32, shape=[3, 2]}\n"
      "y = Placeholder() {dtype=float32, shape=[3, 4]}\n"
      "parts, = Split(y) {axis=1, num=2}\n"
      "a = Neg(parts)\n"
      "b = Neg(parts.feed1)\n"
      "sum = Add(a, b)\n"
      "feed parts.feed1\n"
      "feed y\n"
      "fetch sum\n");
}

TEST(Extract, TargetsBringTheirControlInputs) {
  EXPECT_EQ(TextOf("a = NoOp()\nb = NoOp() ^a\nc = NoOp() ^b\n", {}, {}, {"b"}),
            "a = NoOp()\n"
            "b = NoOp() ^a\n"
            "target b\n");
}

TEST(Extract, SaysWhatIsWrongWithARequest) {
  EXPECT_EQ(TextOf(kGraph, {{"x", 0, {kFloat32, {3, 2}}}}, {"y"}),
            "Placeholder \"w\" has no value in this run; feed it a float32 [2, 4]");
  EXPECT_EQ(TextOf(kGraph, {{"x", 0, {kFloat32, {3, 5}}}}, {"other"}),
            "feed Placeholder \"x\": expected float32 [?, 2], got float32 [3, 5]");
  EXPECT_EQ(TextOf(kGraph, {{"x", 0, {kInt32, {3, 2}}}}, {"other"}),
            "feed Placeholder \"x\": expected float32 [?, 2], got int32 [3, 2]");
  EXPECT_EQ(TextOf(kGraph, {{"x", 0, {kFloat32, {3, 2}}}, {"x", 0, {kFloat32, {3, 2}}}}, {"other"}),
            "feed Placeholder \"x\": it is fed twice in one run");
  // Fits what the graph says, and not what is fed beside it.
  EXPECT_THAT(TextOf("a = Placeholder() {dtype=float32, shape=[?]}\n"
                     "b = Placeholder() {dtype=float32, shape=[?]}\n"
                     "c = Add(a, b)\n",
                     {{"a", 0, {kFloat32, {2}}}, {"b", 0, {kFloat32, {3}}}}, {"c"}),
              HasSubstr("Add \"c\""));
}

}  // namespace
}  // namespace tutti
