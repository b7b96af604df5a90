#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/graph/ops/elementwise_program.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/gradient_check.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::KernelChoice;
using testing::KernelRunner;
using testing::Random;

AttrList Attrs(std::vector<std::string> program, std::vector<int64_t> outputs) {
  AttrList attrs;
  SetAttr(attrs, "program", std::move(program));
  SetAttr(attrs, "outputs", std::move(outputs));
  return attrs;
}

absl::StatusOr<std::vector<Tensor>> RunOne(KernelChoice choice, std::span<const Tensor> inputs,
                                           const AttrList& attrs, int cores = 1,
                                           bool in_place = false) {
  RegisterCpuKernels();
  KernelRunner runner(choice, cores);
  runner.set_in_place(in_place);
  return runner.RunOp("_FusedElementwise", inputs, attrs);
}

TEST(FusedElementwise, RunsAProgram) {
  const Tensor x = Tensor::Of<float>({2, 3}, {-1, 2, -3, 4, -5, 6});
  const Tensor bias = Tensor::Vector<float>({1, 1, 1});
  const auto result = RunOne(KernelChoice::kCpuOnly, std::vector<Tensor>{x, bias},
                             Attrs({"Add $0 $1", "Relu %0", "Mul %1 0.5"}, {2, 0}));
  ASSERT_TRUE(result.ok()) << MessageOf(result.status());
  EXPECT_EQ((*result)[0].ToString(), "float32 [2, 3] {0, 1.5, 0, 2.5, 0, 3.5}");
  EXPECT_EQ((*result)[1].ToString(), "float32 [2, 3] {0, 3, -2, 5, -4, 7}");
}

// Every op of the language, random operands of random shapes, in place and not.
TEST(FusedElementwise, RandomProgramsEqualTheReference) {
  const char* unary[] = {"Neg",  "Abs",  "Square",  "Exp",  "Sin",      "Cos",      "Erf",
                         "Relu", "Tanh", "Sigmoid", "Gelu", "GeluTanh", "Softplus", "Relu6"};
  const char* binary[] = {"Add",
                          "Sub",
                          "Mul",
                          "Maximum",
                          "Minimum",
                          "ReluGrad",
                          "GeluGrad",
                          "TanhGrad",
                          "SigmoidGrad",
                          "Relu6Grad",
                          "SoftplusGrad",
                          "GeluTanhGrad",
                          "SquaredDifference"};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    Shape shape = testing::RandomShape(random, {.max_elements = 5000});
    std::vector<Tensor> inputs = {testing::RandomTensor(random, kFloat32, shape)};
    for (int64_t i = random.Integer(0, 4); i > 0; --i) {
      const Shape own = random.Coin() ? shape : testing::RandomBroadcast(random, shape);
      inputs.push_back(testing::RandomTensor(random, kFloat32, own));
    }
    std::vector<std::string> program;
    std::vector<int64_t> outputs;
    const int64_t lines = random.Integer(1, 12);
    for (int64_t i = 0; i < lines; ++i) {
      const auto operand = [&]() -> std::string {
        if (!program.empty() && random.Integer(0, 2) > 0) {
          return "%" + std::to_string(random.Integer(0, int64_t(program.size()) - 1));
        }
        if (random.Integer(0, 5) == 0) return "0.5";
        return "$" + std::to_string(random.Integer(0, int64_t(inputs.size()) - 1));
      };
      // Clip keeps the numbers of long chains in bounds.
      if (i % 3 == 2) {
        program.push_back("Clip %" + std::to_string(i - 1) + " -2 2");
      } else if (random.Coin()) {
        program.push_back(std::string(unary[random.Integer(0, std::size(unary) - 1)]) + " " +
                          operand());
      } else {
        program.push_back(std::string(binary[random.Integer(0, std::size(binary) - 1)]) + " " +
                          operand() + " " + operand());
      }
      if (i + 1 == lines || random.Integer(0, 3) == 0) outputs.push_back(i);
    }
    const AttrList attrs = Attrs(program, outputs);
    const auto expected = RunOne(KernelChoice::kReference, inputs, attrs);
    ASSERT_TRUE(expected.ok()) << MessageOf(expected.status());
    for (const int cores : {1, 2}) {
      for (const bool in_place : {false, true}) {
        const auto actual = RunOne(KernelChoice::kCpuOnly, inputs, attrs, cores, in_place);
        ASSERT_TRUE(actual.ok()) << MessageOf(actual.status());
        for (size_t i = 0; i < outputs.size(); ++i) {
          const auto equal = testing::CompareTensors((*actual)[i], (*expected)[i], 1e-5);
          EXPECT_TRUE(equal.ok()) << MessageOf(equal) << " seed " << seed << " output " << i;
        }
      }
    }
  }
}

TEST(FusedElementwise, RefusesProgramsThatMakeNoSense) {
  const std::vector<Tensor> inputs = {Tensor::Vector<float>({1, 2})};
  const auto message = [&](std::vector<std::string> program, std::vector<int64_t> outputs = {0}) {
    const auto result = RunOne(KernelChoice::kCpuOnly, inputs, Attrs(program, outputs));
    return std::string(MessageOf(result.status()));
  };
  EXPECT_THAT(message({"Add $0 $1"}),
              HasSubstr("program line 0 \"Add $0 $1\": \"$1\" names none of 1 inputs"));
  EXPECT_THAT(message({"Neg $0", "Neg %1"}), HasSubstr("\"%1\" names none of 1 lines before"));
  EXPECT_THAT(message({"MatMul $0 $0"}), HasSubstr("there is no element-wise op \"MatMul\""));
  EXPECT_THAT(message({"LeakyRelu $0"}), HasSubstr("takes 1 operands and 1 constants"));
  EXPECT_THAT(message({"Neg x"}), HasSubstr("\"x\" is no operand"));
  EXPECT_THAT(message({"Neg $0"}, {1}), HasSubstr("outputs[0] is 1; there are 1 lines"));
  EXPECT_THAT(message({}), HasSubstr("has 0 lines"));
}

}  // namespace
}  // namespace tutti
