#include "tutti/graph/ops/control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/build.h"
#include "tutti/graph/inline.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::tutti::testing::ErrorOf;

class ControlTest : public ::testing::Test {
 protected:
  std::vector<Output> Choose(const std::function<std::vector<Output>()>& yes,
                             const std::function<std::vector<Output>()>& no) {
    return If(p_, yes, no, "choice");
  }

  Graph graph_;
  Output p_ = Placeholder(graph_, kBool, Shape{}, "p");
  Output x_ = Placeholder(graph_, kFloat32, Shape{3}, "x");
  Output y_ = Placeholder(graph_, kFloat32, Shape{kUnknownDim}, "y");
};

TEST_F(ControlTest, IfCapturesWhatItsBranchesUse) {
  const Output z = Choose([&] { return std::vector{Mul(x_, 2.0f)}; },
                          [&] { return std::vector{Add(x_, y_)}; })[0];
  EXPECT_EQ(z.node->op(), "If");
  EXPECT_EQ(z.node->inputs(), (std::vector{p_, x_, y_}));
  EXPECT_EQ(z.dtype(), kFloat32);
  const auto& yes = z.node->attr<std::shared_ptr<const Subgraph>>("then_branch");
  ASSERT_EQ(yes->args.size(), 2u);  // y as well, which only the other branch uses
  EXPECT_EQ(yes->args[1].shape(), Shape{kUnknownDim});
}

TEST_F(ControlTest, IfReturnsOuterValuesAndKnowsTheCommonShape) {
  const Output z = Choose([&] { return std::vector{x_}; }, [&] { return std::vector{y_}; })[0];
  EXPECT_EQ(z.shape(), Shape{kUnknownDim});
  EXPECT_EQ(z.node->num_inputs(), 3);
}

TEST_F(ControlTest, WhatLiesInsideIsOfNoUseOutside) {
  Output inner;
  const auto yes = [&] {
    inner = Mul(x_, 2.0f, "twice");
    return std::vector{inner};
  };
  const auto no = [&] { return std::vector{x_}; };
  Choose(yes, no);
  const std::string outside = ErrorOf([&] { Neg(inner, "negative"); });
  EXPECT_THAT(outside, HasSubstr("Neg \"negative\""));
  EXPECT_THAT(outside, HasSubstr("its input Mul \"twice\""));
  EXPECT_THAT(outside, HasSubstr("lies inside an If or While"));
  // Nor in another branch.
  EXPECT_THAT(ErrorOf([&] { Choose([&] { return std::vector{Neg(inner)}; }, no); }),
              HasSubstr("it lies inside another If or While"));
}

TEST_F(ControlTest, IfWantsBranchesThatAgree) {
  const auto x = [&] { return std::vector{x_}; };
  EXPECT_THAT(ErrorOf([&] { Choose(x, [&] {
                              return std::vector{x_, x_};
                            }); }),
              HasSubstr("then_branch returns 1 values, else_branch 2"));
  EXPECT_THAT(ErrorOf([&] { Choose(x, [&] { return std::vector{Cast(x_, kFloat64)}; }); }),
              HasSubstr("result 0 is float32 [3] in then_branch and float64 [3] in else_branch"));
  EXPECT_THAT(ErrorOf([&] { Choose(x, [&] { return std::vector{Constant(graph_, 1.0f)}; }); }),
              HasSubstr("result 0 is float32 [3] in then_branch and float32 [] in else_branch"));
  EXPECT_THAT(ErrorOf([&] { Choose(x, [&] { return std::vector<Output>(); }); }),
              HasSubstr("else_branch 0"));
  EXPECT_THAT(ErrorOf([&] { Choose(x, [&] { return std::vector{Output()}; }); }),
              HasSubstr("If: else_branch: one of its results is empty"));
  EXPECT_THAT(ErrorOf([&] { If(x_, x, x); }), HasSubstr("expected bool"));
  EXPECT_THAT(ErrorOf([&] { If(true, x, x); }), HasSubstr("the predicate is a C++ value"));
  // A failed If leaves the graph as usable as before.
  EXPECT_EQ(Choose(x, x).size(), 1u);
}

TEST_F(ControlTest, WhileHasResultsRecordsAndACount) {
  const Output i = Constant(graph_, int64_t{0});
  const auto end = While(
      {i, x_}, [&](std::span<const Output> v) { return Less(v[0], 5); },
      [&](std::span<const Output> v) {
        return std::vector{Add(v[0], 1), Add(v[1], y_)};
      });
  ASSERT_EQ(end.size(), 2u);
  const Node& node = *end[0].node;
  EXPECT_EQ(node.inputs(), (std::vector{i, x_, y_}));
  EXPECT_EQ(NumLoopVariables(node), 2);
  ASSERT_EQ(node.num_outputs(), 5);
  EXPECT_EQ(node.type(1).shape, Shape{3});
  EXPECT_EQ(node.type(2).shape, Shape{kUnknownDim});
  EXPECT_EQ(node.type(3).shape, (Shape{kUnknownDim, 3}));
  EXPECT_EQ(node.type(4), (ValueType{kInt64, Shape{}}));
  EXPECT_THAT(node.Describe(), HasSubstr("control_test.cc"));
}

TEST_F(ControlTest, WhileWantsVariablesThatKeepTheirTypes) {
  const auto always = [&](std::span<const Output>) { return p_; };
  const auto loop = [&](const std::function<std::vector<Output>(std::span<const Output>)>& body) {
    return ErrorOf([&] { While({x_}, always, body, {}, "loop"); });
  };
  EXPECT_THAT(loop([&](std::span<const Output> v) { return std::vector{Cast(v[0], kInt32)}; }),
              HasSubstr("loop variable 0 is float32 [3] but the body returns int32 [3] for it"));
  EXPECT_THAT(loop([&](std::span<const Output>) { return std::vector<Output>(); }),
              HasSubstr("the body returns 0 values for 1 loop variables"));
  EXPECT_THAT(loop([&](std::span<const Output> v) {
                return std::vector{v[0], v[0]};
              }),
              HasSubstr("the body returns 2 values for 1 loop variables"));
  const auto same = [](std::span<const Output> v) { return std::vector{v[0]}; };
  EXPECT_THAT(ErrorOf([&] {
                While(
                    {x_}, [&](std::span<const Output> v) { return v[0]; }, same);
              }),
              HasSubstr("the condition returns float32 [3]; expected one bool scalar"));
  EXPECT_THAT(ErrorOf([&] { While(std::span<const Output>(), always, same); }),
              HasSubstr("no loop variables"));
  EXPECT_THAT(ErrorOf([&] { While({x_}, always, same, {.shapes = {Shape{2}}}); }),
              HasSubstr("values[0] is float32 [3]; condition takes float32 [2] there"));
  EXPECT_THAT(ErrorOf([&] { While({x_}, always, same, {.max_iterations = -1}); }),
              HasSubstr("max_iterations is -1"));
}

TEST_F(ControlTest, NestsSixtyFourDeepAndNoDeeper) {
  const std::function<Output(int)> nest = [&](int depth) -> Output {
    if (depth == 0) return Identity(x_);
    return If(
        p_, [&] { return std::vector{nest(depth - 1)}; }, [&] { return std::vector{x_}; })[0];
  };
  EXPECT_EQ(nest(64).node->inputs(), (std::vector{p_, x_, p_}));  // p is captured as well
  EXPECT_THAT(ErrorOf([&] { nest(65); }), HasSubstr("If and While lie 65 deep"));
}

TEST_F(ControlTest, InlineRefusesToRepeatEffects) {
  const Output variable = Variable(
      graph_,
      Initializer{kFloat32,
                  {3},
                  [](Graph& graph) { return Constant(graph, Tensor::Zeros(kFloat32, {3})); }},
      "v");
  const Output changed = Choose([&] { return std::vector{AssignAdd(variable, x_)}; },
                                [&] { return std::vector{x_}; })[0];
  const auto& yes = *changed.node->attr<std::shared_ptr<const Subgraph>>("then_branch");
  EXPECT_THAT(ErrorOf([&] {
                InlineSubgraph(yes, std::vector{variable, x_}, graph_);
              }),
              HasSubstr("AssignAdd"));
  const auto& no = *changed.node->attr<std::shared_ptr<const Subgraph>>("else_branch");
  EXPECT_EQ(InlineSubgraph(no, std::vector{variable, y_}, graph_)[0].shape(), Shape{kUnknownDim});
}

TEST_F(ControlTest, ChecksAskForTheRightTypes) {
  EXPECT_THAT(ErrorOf([&] { Assert(x_); }), HasSubstr("expected bool"));
  EXPECT_THAT(ErrorOf([&] { CheckNumerics(p_); }), HasSubstr("expected a floating-point type"));
  EXPECT_EQ(Print(x_, "x").shape(), Shape{3});
}

}  // namespace
}  // namespace tutti
