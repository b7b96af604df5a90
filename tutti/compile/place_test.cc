#include "tutti/compile/place.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

// The text of the program once it is placed on devices of these names, or the error. What fell back
// follows, a line each.
std::string PlacedOn(std::vector<std::string> names, const Program& program, bool soft = false) {
  std::vector<DeviceInfo> devices;
  for (std::string& name : names) devices.push_back({.name = std::move(name), .type = "cpu"});
  std::string fell_back;
  const auto placed =
      Place(program, devices, {.soft = soft, .fell_back = [&](const Node&, const std::string& why) {
                                 fell_back += why + "\n";
                               }});
  return placed.ok() ? ToText(*placed) + fell_back : std::string(MessageOf(placed.status()));
}

std::string Placed(std::string_view text, bool soft = false) {
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return PlacedOn({"/job:local/task:0/cpu:0", "/job:local/task:0/cpu:1"}, *program, soft);
}

TEST(Place, GivesEveryNodeADevice) {
  EXPECT_EQ(Placed(R"(
x = Placeholder() {dtype=float32, shape=[2]}
y = Neg(x) @/cpu:1
z = Neg(y) @/task:0
feed x
fetch z
)"),
            "x = Placeholder() {dtype=float32, shape=[2]} @/job:local/task:0/cpu:0\n"
            "y = Neg(x) @/job:local/task:0/cpu:1\n"
            "z = Neg(y) @/job:local/task:0/cpu:0\n"
            "feed x\n"
            "fetch z\n");
}

TEST(Place, StateKeepsItsUpdatesBesideIt) {
  EXPECT_EQ(Placed(R"(
v = Variable() {dtype=float32, shape=[2]} @/cpu:1
x = Placeholder() {dtype=float32, shape=[2]}
u = AssignAdd(v, x)
r = Neg(v)
feed x
fetch r
target u
)"),
            "v = Variable() {dtype=float32, shape=[2]} @/job:local/task:0/cpu:1\n"
            "x = Placeholder() {dtype=float32, shape=[2]} @/job:local/task:0/cpu:0\n"
            "u = AssignAdd(v, x) @/job:local/task:0/cpu:1\n"
            "r = Neg(v) @/job:local/task:0/cpu:0\n"
            "feed x\n"
            "fetch r\n"
            "target u\n");
}

TEST(Place, RowsAreLookedUpWhereTheTableLives) {
  EXPECT_EQ(Placed(R"(
v = Variable() {dtype=float32, shape=[9, 2]} @/cpu:1
i = Placeholder() {dtype=int64, shape=[3]}
rows = Gather(v, i) {axis=0}
here = Gather(v, i) {axis=0} @/cpu:0
columns = Gather(v, i) {axis=1}
sum = Neg(rows)
feed i
fetch sum
fetch here
fetch columns
)"),
            "v = Variable() {dtype=float32, shape=[9, 2]} @/job:local/task:0/cpu:1\n"
            "i = Placeholder() {dtype=int64, shape=[3]} @/job:local/task:0/cpu:0\n"
            "rows = Gather(v, i) {axis=0} @/job:local/task:0/cpu:1\n"
            "here = Gather(v, i) {axis=0} @/job:local/task:0/cpu:0\n"
            "columns = Gather(v, i) {axis=1} @/job:local/task:0/cpu:0\n"
            "sum = Neg(rows) @/job:local/task:0/cpu:0\n"
            "feed i\n"
            "fetch sum\n"
            "fetch here\n"
            "fetch columns\n");
}

TEST(Place, NamesWishesThatCannotBeMet) {
  EXPECT_EQ(Placed("a = NoOp() @/cpu:7\ntarget a\n"),
            "NoOp \"a\" asks for device \"/cpu:7\"; there are: /job:local/task:0/cpu:0, "
            "/job:local/task:0/cpu:1");
  EXPECT_EQ(Placed("a = NoOp() @cpu\ntarget a\n").substr(0, 10), "NoOp \"a\": ");
  EXPECT_EQ(Placed(R"(
v = Variable() {dtype=float32, shape=[2]} @/cpu:1
x = Placeholder() {dtype=float32, shape=[2]}
u = AssignAdd(v, x) @/cpu:0
feed x
target u
)"),
            "AssignAdd \"u\" asks for device \"/cpu:0\", but Variable \"v\" lives on "
            "/job:local/task:0/cpu:1, where it must run");
}

TEST(Place, TakesPartsOfNamesAndStars) {
  const auto program = ParseProgram(R"(
a = NoOp() @"/job:worker/task:*/cpu:1"
b = NoOp() @/task:1
c = NoOp() @cpu:1
d = NoOp()
e = NoOp() @"/job:worker/task:1/cpu:*"
f = NoOp() @"/job:*/task:0"
target a, b, c, d, e, f
)");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(PlacedOn({"/job:ps/task:1/cpu:0", "/job:ps/task:0/cpu:0", "/job:worker/task:0/cpu:0",
                      "/job:worker/task:0/cpu:1", "/job:worker/task:1/cpu:0"},
                     *program),
            "a = NoOp() @/job:worker/task:0/cpu:1\n"
            "b = NoOp() @/job:ps/task:1/cpu:0\n"
            "c = NoOp() @/job:worker/task:0/cpu:1\n"
            "d = NoOp() @/job:ps/task:1/cpu:0\n"
            "e = NoOp() @/job:worker/task:1/cpu:0\n"
            "f = NoOp() @/job:ps/task:0/cpu:0\n"
            "target a\n"
            "target b\n"
            "target c\n"
            "target d\n"
            "target e\n"
            "target f\n");
}

TEST(Place, PutsColocatedNodesBesideEachOther) {
  EXPECT_EQ(Placed(R"(
x = Placeholder() {dtype=float32, shape=[2]}
a = Neg(x) {_colocate="c"}
b = Neg(x) {_colocate="a"}
c = Neg(x) @cpu:1
d = Neg(x) {_colocate="b"} @cpu:1
feed x
fetch a, b, d
)"),
            "x = Placeholder() {dtype=float32, shape=[2]} @/job:local/task:0/cpu:0\n"
            "a = Neg(x) @/job:local/task:0/cpu:1\n"
            "b = Neg(x) @/job:local/task:0/cpu:1\n"
            "c = Neg(x) @/job:local/task:0/cpu:1\n"
            "d = Neg(x) @/job:local/task:0/cpu:1\n"
            "feed x\n"
            "fetch a\n"
            "fetch b\n"
            "fetch d\n");
}

TEST(Place, RefusesColocationThatCannotBe) {
  EXPECT_EQ(Placed("a = NoOp() {_colocate=\"b\"}\nb = NoOp() {_colocate=\"c\"}\n"
                   "c = NoOp() {_colocate=\"b\"}\ntarget a\n"),
            "nodes are colocated in a circle: NoOp \"b\" with NoOp \"c\" with "
            "\"b\"");
  EXPECT_EQ(Placed("a = NoOp() {_colocate=\"a\"}\ntarget a\n"),
            "nodes are colocated in a circle: NoOp \"a\" with \"a\"");
  EXPECT_EQ(Placed("a = NoOp() {_colocate=\"z\"}\ntarget a\n"),
            "NoOp \"a\" is colocated with \"z\", but the graph has no such node");
  EXPECT_EQ(
      Placed("a = NoOp() @/cpu:1\nb = NoOp() {_colocate=\"a\"} @/cpu:0\ntarget b\n"),
      "NoOp \"b\" asks for device \"/cpu:0\", but it is colocated with NoOp \"a\", which is on "
      "/job:local/task:0/cpu:1");
  EXPECT_EQ(
      Placed(R"(
v = Variable() {dtype=float32, shape=[2]} @/cpu:1
x = Placeholder() {dtype=float32, shape=[2]}
u = AssignAdd(v, x) {_colocate="x"}
feed x
target u
)"),
      "AssignAdd \"u\" is colocated with Placeholder \"x\", which is on "
      "/job:local/task:0/cpu:0, but Variable \"v\" lives on /job:local/task:0/cpu:1, where it "
      "must run");
}

TEST(Place, FallsBackWhereThatIsWanted) {
  EXPECT_EQ(
      Placed("a = NoOp() @/gpu:0\nb = NoOp() {_colocate=\"a\"} @/cpu:1\nc = NoOp() @cpu:1\n"
             "target a\n"
             "target b\n"
             "target c\n",
             true),
      "a = NoOp() @/job:local/task:0/cpu:0\n"
      "b = NoOp() @/job:local/task:0/cpu:0\n"
      "c = NoOp() @/job:local/task:0/cpu:1\n"
      "target a\n"
      "target b\n"
      "target c\n"
      "NoOp \"a\" asks for device \"/gpu:0\"; there are: /job:local/task:0/cpu:0, "
      "/job:local/task:0/cpu:1; it goes to /job:local/task:0/cpu:0\n"
      "NoOp \"b\" asks for device \"/cpu:1\", but it is colocated with NoOp \"a\", which is on "
      "/job:local/task:0/cpu:0; it goes to /job:local/task:0/cpu:0\n");
  EXPECT_EQ(Placed("a = NoOp() @cpu\ntarget a\n", true).substr(0, 10), "NoOp \"a\": ")
      << "a name that is none stays an error";
}

// What scopes leave on nodes, and the line that an error names.
TEST(Place, NamesTheLineThatSetAWish) {
  Program program;
  Graph& graph = *program.graph;
  const Output x = Constant(graph, 1.0f, "x");
  Output y;
  uint_least32_t line = 0;
  {
    line = std::source_location::current().line() + 1;
    const DeviceScope scope(graph, "/cpu:9");
    y = Neg(x, "y");
  }
  program.fetches = {y};
  EXPECT_THAT(PlacedOn({"/job:local/task:0/cpu:0"}, program),
              ::testing::HasSubstr(
                  fmt::format("asks for device \"/cpu:9\" (place_test.cc:{}); there are: ", line)));
}

TEST(Place, ScopesColocate) {
  Program program;
  Graph& graph = *program.graph;
  Output a, b, c;
  {
    const DeviceScope scope(graph, "cpu:1");
    a = Constant(graph, 1.0f, "a");
    const ColocateWith beside(a);
    b = Neg(a, "b");
    const DeviceScope like(graph, *b.node);
    c = Neg(b, "c");
  }
  program.fetches = {c};
  EXPECT_EQ(b.node->colocated_with(), "a");
  EXPECT_EQ(b.node->device(), "");
  EXPECT_EQ(c.node->colocated_with(), "a");
  EXPECT_EQ(graph.device_scope(), "");
  EXPECT_THAT(PlacedOn({"/job:local/task:0/cpu:0", "/job:local/task:0/cpu:1"}, program),
              ::testing::HasSubstr("c = Neg(b) @/job:local/task:0/cpu:1"));
}

}  // namespace
}  // namespace tutti
