#include "tutti/compile/memory_peak.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

// "at b: b 400, a 200", for the program in `text`.
std::string PeakText(std::string_view text) {
  RegisterCpuKernels();
  auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  Device device("/job:local/task:0/cpu:0", 1);
  const auto plan = MakeStepPlan(*std::move(program), device);
  if (!plan.ok()) return std::string(MessageOf(plan.status()));
  const MemoryPeak peak = PeakOf(**plan);
  if (peak.node == nullptr) return "nothing";
  std::vector<std::string> live;
  size_t sum = 0;
  for (const LiveBytes& value : peak.live) {
    live.push_back(
        fmt::format("{}{} {}", value.node->name(), value.scratch ? " (scratch)" : "", value.bytes));
    sum += value.bytes;
  }
  EXPECT_EQ(sum, peak.bytes);
  EXPECT_LE(peak.bytes, (*plan)->arena_bytes());
  return fmt::format("at {}: {}", peak.node->name(), fmt::join(live, ", "));
}

TEST(MemoryPeak, IsWhereMostIsAlive) {
  // At b there is a, at d nothing but d, which takes the place of c.
  EXPECT_EQ(PeakText(R"(
x = Placeholder() {dtype=float32, shape=[64]}
a = Neg(x)
b = Concat(a, a, a) {axis=0}
c = Concat(b, b) {axis=0}
d = Neg(c)
feed x
target d
)"),
            "at c: c 1536, b 768");
}

TEST(MemoryPeak, BytesThatAreSharedCountOnce) {
  // b lies where a lay, v is a view of it, and e lies where d lay.
  EXPECT_EQ(PeakText(R"(
x = Placeholder() {dtype=float32, shape=[64]}
shape = Constant() {value=int64 [2] {8, 8}}
a = Neg(x)
b = Exp(a)
v = Reshape(b, shape)
d = MatMul(v, v)
e = Neg(d)
f = MatMul(v, e)
feed x
target f
)"),
            "at f: b 256, e 256, f 256");
  EXPECT_EQ(PeakText(R"(
x = Placeholder() {dtype=float32, shape=[64]}
a = Neg(x)
b = Exp(a)
feed x
target b
)"),
            "at a: a 256");
}

TEST(MemoryPeak, ScratchCountsWhileItsNodeRuns) {
  EXPECT_THAT(PeakText(R"(
x = Placeholder() {dtype=float32, shape=[2, 8]}
a = Neg(x)
b = BiasAddGrad(a)
c = Neg(b)
feed x
target c
)"),
              ::testing::MatchesRegex("at b: b \\(scratch\\) [0-9]+, a 64, b 32"));
}

TEST(MemoryPeak, APlanWithoutNodesHasNone) {
  EXPECT_EQ(PeakText("x = Placeholder() {dtype=float32, shape=[64]}\nfeed x\nfetch x\n"),
            "nothing");
}

}  // namespace
}  // namespace tutti
