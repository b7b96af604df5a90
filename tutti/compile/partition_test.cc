#include "tutti/compile/partition.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tutti/compile/place.h"
#include "tutti/compile/program_text.h"

namespace tutti {
namespace {

// The parts of the program in `text`, placed on three devices: for each its device, its text, and
// which feeds and fetches of the whole it has. "DEVICE" stands for what all names begin with.
std::string Cut(std::string_view text) {
  const std::string prefix = "/job:local/task:0";
  const DeviceInfo devices[] = {{.name = prefix + "/cpu:0", .type = "cpu"},
                                {.name = prefix + "/cpu:1", .type = "cpu"},
                                {.name = prefix + "/cpu:2", .type = "cpu"}};
  const auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  const auto placed = Place(*program, devices);
  EXPECT_TRUE(placed.ok()) << placed.status();
  const auto parts = CutByDevice(*placed, devices);
  if (!parts.ok()) return std::string(MessageOf(parts.status()));
  std::string all;
  for (const Partition& part : *parts) {
    all += fmt::format("[{}] feeds {} fetches {}\n{}", part.device, fmt::join(part.feed_index, ","),
                       fmt::join(part.fetch_index, ","), ToText(part.program));
  }
  for (size_t at = all.find(prefix); at != std::string::npos; at = all.find(prefix, at)) {
    all.replace(at, prefix.size(), "");
  }
  return all;
}

TEST(Partition, OneDeviceIsOnePart) {
  EXPECT_EQ(Cut("x = Placeholder() {dtype=float32, shape=[2]}\n"
                "y = Neg(x)\n"
                "feed x\n"
                "fetch y\n"),
            "[/cpu:0] feeds 0 fetches 0\n"
            "x = Placeholder() {dtype=float32, shape=[2]} @/cpu:0\n"
            "y = Neg(x) @/cpu:0\n"
            "feed x\n"
            "fetch y\n");
}

TEST(Partition, AValueCrossesOncePerDevice) {
  EXPECT_EQ(Cut(R"(
x = Placeholder() {dtype=float32, shape=[2]}
a = Neg(x) @/cpu:2
b = Exp(x) @/cpu:2
c = Add(a, b)
feed x
fetch c
fetch a
)"),
            "[/cpu:0] feeds  fetches 0\n"
            "a.recv = Recv() {dtype=float32, key=\"/cpu:2;/cpu:0;a\", shape=[2]} @/cpu:0\n"
            "b.recv = Recv() {dtype=float32, key=\"/cpu:2;/cpu:0;b\", shape=[2]} @/cpu:0\n"
            "c = Add(a.recv, b.recv) @/cpu:0\n"
            "fetch c\n"
            "[/cpu:2] feeds 0 fetches 1\n"
            "x = Placeholder() {dtype=float32, shape=[2]} @/cpu:2\n"
            "a = Neg(x) @/cpu:2\n"
            "b = Exp(x) @/cpu:2\n"
            "a.send = Send(a) {key=\"/cpu:2;/cpu:0;a\"} @/cpu:2\n"
            "b.send = Send(b) {key=\"/cpu:2;/cpu:0;b\"} @/cpu:2\n"
            "feed x\n"
            "fetch a\n"
            "target a.send\n"
            "target b.send\n");
}

TEST(Partition, ConstantsAndFeedsAreRepeated) {
  EXPECT_EQ(Cut(R"(
x = Placeholder() {dtype=float32, shape=[]}
c = Constant() {value=float32 [] {2}}
a = Mul(x, c)
b = Add(x, c) @/cpu:1
feed x
fetch a
fetch b
)"),
            "[/cpu:0] feeds 0 fetches 0\n"
            "x = Placeholder() {dtype=float32, shape=[]} @/cpu:0\n"
            "c = Constant() {value=float32 [] {2}} @/cpu:0\n"
            "a = Mul(x, c) @/cpu:0\n"
            "feed x\n"
            "fetch a\n"
            "[/cpu:1] feeds 0 fetches 1\n"
            "x = Placeholder() {dtype=float32, shape=[]} @/cpu:1\n"
            "c = Constant() {value=float32 [] {2}} @/cpu:1\n"
            "b = Add(x, c) @/cpu:1\n"
            "feed x\n"
            "fetch b\n");
}

TEST(Partition, WhatIsMadeFromSmallConstantsIsComputedAgain) {
  EXPECT_EQ(Cut(R"(
k = Constant() {value=int64 [1] {3}}
v = Constant() {value=float32 [] {2}}
f = Fill(k, v)
x = Placeholder() {dtype=float32, shape=[3]} @/cpu:1
y = Add(x, f) @/cpu:1
feed x
fetch y
)"),
            "[/cpu:1] feeds 0 fetches 0\n"
            "x = Placeholder() {dtype=float32, shape=[3]} @/cpu:1\n"
            "k = Constant() {value=int64 [1] {3}} @/cpu:1\n"
            "v = Constant() {value=float32 [] {2}} @/cpu:1\n"
            "f = Fill(k, v) @/cpu:1\n"
            "y = Add(x, f) @/cpu:1\n"
            "feed x\n"
            "fetch y\n");
}

TEST(Partition, AViewOfWhatIsThereIsRepeated) {
  EXPECT_EQ(Cut(R"(
s = Constant() {value=int64 [2] {1, 2}}
x = Placeholder() {dtype=float32, shape=[2]}
n = Neg(x)
a = Neg(n) @/cpu:1
r = Reshape(n, s)
b = Neg(r) @/cpu:1
feed x
fetch a
fetch b
)"),
            "[/cpu:0] feeds 0 fetches \n"
            "s = Constant() {value=int64 [2] {1, 2}} @/cpu:0\n"
            "x = Placeholder() {dtype=float32, shape=[2]} @/cpu:0\n"
            "n = Neg(x) @/cpu:0\n"
            "n.send = Send(n) {key=\"/cpu:0;/cpu:1;n\"} @/cpu:0\n"
            "r = Reshape(n, s) @/cpu:0\n"
            "feed x\n"
            "target n.send\n"
            "[/cpu:1] feeds  fetches 0,1\n"
            "n.recv = Recv() {dtype=float32, key=\"/cpu:0;/cpu:1;n\", shape=[2]} @/cpu:1\n"
            "a = Neg(n.recv) @/cpu:1\n"
            "s = Constant() {value=int64 [2] {1, 2}} @/cpu:1\n"
            "r = Reshape(n.recv, s) @/cpu:1\n"
            "b = Neg(r) @/cpu:1\n"
            "fetch a\n"
            "fetch b\n");
}

// A value travels when it is sent; the Recv stands where it is needed.
TEST(Partition, ARecvStandsBeforeItsFirstReader) {
  EXPECT_EQ(Cut(R"(
x = Placeholder() {dtype=float32, shape=[2]}
y = Placeholder() {dtype=float32, shape=[2]} @/cpu:1
a = Neg(x)
b = Neg(y) @/cpu:1
c = Neg(b) @/cpu:1
d = Add(c, a) @/cpu:1
feed x, y
fetch d
)"),
            "[/cpu:0] feeds 0 fetches \n"
            "x = Placeholder() {dtype=float32, shape=[2]} @/cpu:0\n"
            "a = Neg(x) @/cpu:0\n"
            "a.send = Send(a) {key=\"/cpu:0;/cpu:1;a\"} @/cpu:0\n"
            "feed x\n"
            "target a.send\n"
            "[/cpu:1] feeds 1 fetches 0\n"
            "y = Placeholder() {dtype=float32, shape=[2]} @/cpu:1\n"
            "b = Neg(y) @/cpu:1\n"
            "c = Neg(b) @/cpu:1\n"
            "a.recv = Recv() {dtype=float32, key=\"/cpu:0;/cpu:1;a\", shape=[2]} @/cpu:1\n"
            "d = Add(c, a.recv) @/cpu:1\n"
            "feed y\n"
            "fetch d\n");
}

TEST(Partition, AControlEdgeCrossesAsAnEmptyMessage) {
  EXPECT_EQ(Cut(R"(
a = NoOp()
b = NoOp() ^a @/cpu:1
c = NoOp() ^a ^b @/cpu:1
target c
)"),
            "[/cpu:0] feeds  fetches \n"
            "a = NoOp() @/cpu:0\n"
            "a.token = Constant() {value=uint8 [0] {}} @/cpu:0\n"
            "a.done.send = Send(a.token) {key=\"/cpu:0;/cpu:1;a:done\"} ^a @/cpu:0\n"
            "target a.done.send\n"
            "[/cpu:1] feeds  fetches \n"
            "a.done.recv = Recv() {dtype=uint8, key=\"/cpu:0;/cpu:1;a:done\", shape=[0]} @/cpu:1\n"
            "b = NoOp() ^a.done.recv @/cpu:1\n"
            "c = NoOp() ^a.done.recv ^b @/cpu:1\n"
            "target c\n");
}

}  // namespace
}  // namespace tutti
