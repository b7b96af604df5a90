#include <gtest/gtest.h>

#include "tutti/compile/passes/passes.h"
#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

std::string Fused(std::string_view text) {
  RegisterCpuKernels();
  auto program = ParseProgram(text);
  if (!program.ok()) return std::string(MessageOf(program.status()));
  const auto fused = FuseDescent(*std::move(program), {});
  return fused.ok() ? ToText(*fused) : std::string(MessageOf(fused.status()));
}

const std::string kStart =
    "rate = Placeholder() {dtype=float32, shape=[]}\n"
    "x = Placeholder() {dtype=float32, shape=[8, 4]}\n"
    "dy = Placeholder() {dtype=float32, shape=[8, 3]}\n"
    "w = Variable() {dtype=float32, shape=[4, 3]}\n";
const std::string kFeeds = "feed rate\nfeed x\nfeed dy\n";

TEST(FuseDescent, SumsTheProductIntoTheVariable) {
  EXPECT_EQ(Fused(kStart +
                  "g = MatMul(x, dy) {transpose_a=true}\n"
                  "u = ApplyGradientDescent(w, rate, g)\n" +
                  kFeeds + "target u\n"),
            kStart + "u = _MatMulDescent(w, rate, x, dy) {transpose_a=true, transpose_b=false}\n" +
                kFeeds + "target u\n");
}

// Each of these programs must come out as it went in.
TEST(FuseDescent, LeavesAloneAGradientThatOthersNeed) {
  const std::string fetched = kStart +
                              "g = MatMul(x, dy) {transpose_a=true}\n"
                              "u = ApplyGradientDescent(w, rate, g)\n" +
                              kFeeds + "fetch g\ntarget u\n";
  const std::string bucket = kStart +
                             "g = MatMul(x, dy) {transpose_a=true}\n"
                             "s = AllReduce(g) {algorithm=\"\", group=\"\", key=\"\", "
                             "wire=\"as-is\"}\n"
                             "u = ApplyGradientDescent(w, rate, s)\n" +
                             kFeeds + "target u\n";
  const std::string momentum = kStart +
                               "m = Variable() {dtype=float32, shape=[4, 3]}\n"
                               "g = MatMul(x, dy) {transpose_a=true}\n"
                               "u = ApplyMomentum(w, m, rate, g) {momentum=0.5}\n" +
                               kFeeds + "target u\n";
  for (const std::string& program : {fetched, bucket, momentum}) EXPECT_EQ(Fused(program), program);
}

}  // namespace
}  // namespace tutti
