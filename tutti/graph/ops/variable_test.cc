// What Variable makes, and what it leaves behind when it cannot: nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tutti/base/error.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/random.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/text/format.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::tutti::testing::ErrorOf;

Initializer Uniform() {
  return {kFloat32, {3}, [](Graph& graph) { return RandomUniform(graph, Shape{3}); }};
}

// Makes some nodes and then fails.
template <typename Exception>
Initializer Failing(Exception exception) {
  return {kFloat32, {3}, [exception](Graph& graph) -> Output {
            Add(RandomUniform(graph, Shape{3}), 1.0f);
            throw exception;
          }};
}

TEST(Variable, AnInitialiserThatFailsLeavesNothing) {
  Graph clean;
  Variable(clean, Uniform(), "w");

  Graph graph;
  const int line = __LINE__ + 1;
  const auto build = [&] { Variable(graph, Failing(Error(Code::kNotFound, "no file")), "w"); };
  EXPECT_EQ(ErrorOf(build), "Variable \"w\" (variable_test.cc:" + std::to_string(line) +
                                "): its initialiser failed: no file");
  EXPECT_THROW(Variable(graph, Failing(std::runtime_error("own")), "w"), std::runtime_error);
  EXPECT_EQ(graph.size(), 0);
  EXPECT_EQ(graph.Find("w"), nullptr);
  Variable(graph, Uniform(), "w");
  EXPECT_EQ(ToText(graph), ToText(clean)) << "names, and with them random numbers, differ";
}

TEST(Variable, OneThatFailsLeavesTheOthersTheirNames) {
  Graph graph;
  Output inside;
  {
    NameScope scope(graph, "w");
    inside = Constant(graph, 1.0f, "inside");
  }
  const Output before = Variable(graph, Uniform(), "before");
  const int64_t size = graph.size();
  EXPECT_NE(ErrorOf([&] { Variable(graph, Failing(Error(Code::kNotFound, "no")), "w"); }),
            "no error");
  EXPECT_EQ(graph.size(), size);
  EXPECT_EQ(graph.Find("before"), before.node);
  EXPECT_EQ(graph.Find("w/inside"), inside.node);
  NameScope scope(graph, "w");
  EXPECT_EQ(scope.prefix(), "w_1/") << "the scope is taken by what lies in it";
}

TEST(Variable, AValueOfAnotherShapeLeavesNothing) {
  Graph graph;
  const Initializer wrong{kFloat32, {2}, [](Graph& g) { return RandomUniform(g, Shape{3}); }};
  EXPECT_THAT(ErrorOf([&] { Variable(graph, wrong, "w"); }),
              HasSubstr("shapes differ: variable is [2], value is [3]"));
  const Initializer empty{kFloat32, {2}, [](Graph&) { return Output(); }};
  EXPECT_THAT(ErrorOf([&] { Variable(graph, empty, "w"); }), HasSubstr("input 1 is empty"));
  EXPECT_EQ(graph.size(), 0);
}

TEST(Variable, AnEmptyInitialiserIsAnError) {
  Graph graph;
  EXPECT_THAT(ErrorOf([&] {
                Variable(graph, Initializer{kFloat32, {2}, {}}, "w");
              }),
              HasSubstr("its initialiser is empty: Initializer::build holds no function"));
  EXPECT_EQ(graph.size(), 0);
}

// Neither in the graph of the body nor, while a body is being built, in the one around it.
TEST(Variable, CannotBeMadeInsideABody) {
  Graph graph;
  const Output p = Placeholder(graph, kBool, Shape{}, "p");
  const Output x = Placeholder(graph, kFloat32, Shape{3}, "x");
  for (const bool around : {false, true}) {
    const std::string error = ErrorOf([&] {
      If(
          p,
          [&] {
            const Output y = Add(x, 1.0f);
            return std::vector{Add(y, Variable(around ? graph : y.graph(), Uniform(), "w"))};
          },
          [&] { return std::vector{x}; });
    });
    EXPECT_THAT(error, StartsWith("Variable \"w\" (variable_test.cc:"));
    EXPECT_THAT(error, HasSubstr("make it before the If or While and use it inside"));
  }
  EXPECT_EQ(graph.Find("w"), nullptr);
}

}  // namespace
}  // namespace tutti
