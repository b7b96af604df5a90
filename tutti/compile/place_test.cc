#include "tutti/compile/place.h"

#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"

namespace tutti {
namespace {

// The text of the program in `text` once it is placed on two devices, or the error.
std::string Placed(std::string_view text) {
  const DeviceInfo devices[] = {{.name = "/job:local/task:0/cpu:0", .type = "cpu"},
                                {.name = "/job:local/task:0/cpu:1", .type = "cpu"}};
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  const auto placed = Place(*program, devices);
  return placed.ok() ? ToText(*placed) : std::string(MessageOf(placed.status()));
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

}  // namespace
}  // namespace tutti
