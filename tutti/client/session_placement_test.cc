// Sessions whose nodes the cost model places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::tutti::testing::SessionUnderTest;

std::string ErrorFrom(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class SessionPlacementTest : public ::testing::Test {
 protected:
  SessionPlacementTest() { RegisterCpuKernels(); }

  // Two towers with a variable each, and an update of both.
  void BuildTowers(int64_t width) {
    x_ = Placeholder(graph_, kFloat32, {-1, width}, "x");
    for (const char* name : {"v", "w"}) {
      const Shape shape = {width, width};
      variables_.push_back(Variable(graph_,
                                    {kFloat32, shape,
                                     [=](Graph& g) {
                                       Tensor value(kFloat32, shape);
                                       for (size_t i = 0; float& v : value.values<float>())
                                         v = float(i++ % 7) / 100;
                                       return Constant(g, value);
                                     }},
                                    name));
      Output h = x_;
      for (int i = 0; i < 4; ++i) h = Tanh(MatMul(h, variables_.back()));
      towers_.push_back(h);
    }
    loss_ = Mean(Square(towers_[0] - towers_[1] * 2.0f));
    const std::vector<Output> gradients = Gradients(loss_, variables_);
    for (size_t i = 0; i < variables_.size(); ++i) {
      updates_.push_back(AssignSub(variables_[i], gradients[i] * 0.1f).node);
    }
  }

  std::vector<float> Train(auto& session, int64_t rows, int steps) {
    session.Initialize();
    Tensor value(kFloat32, {rows, x_.shape()[1]});
    for (size_t i = 0; float& v : value.values<float>()) v = std::sin(float(i++));
    std::vector<float> losses;
    for (int step = 0; step < steps; ++step) {
      const Feed feeds[] = {{x_, value}};
      const Output fetches[] = {loss_};
      losses.push_back(session.Run(feeds, fetches, updates_)[0].template scalar<float>());
    }
    return losses;
  }

  Graph graph_;
  Output x_, loss_;
  std::vector<Output> variables_, towers_;
  std::vector<const Node*> updates_;
};

TEST_F(SessionPlacementTest, TrainsAsOnOneDevice) {
  BuildTowers(64);
  // Passes fuse what lies on one device, which may round differently.
  Session one(graph_, {.cores_per_device = 1, .optimize = false});
  const std::vector<float> expected = Train(one, 256, 15);
  for (const char* method : {"greedy", "search"}) {
    SCOPED_TRACE(method);
    SessionUnderTest several(
        graph_, {.devices = 3, .cores_per_device = 1, .optimize = false, .placement = method});
    // More steps than are measured: the step may be placed anew on the way.
    EXPECT_EQ(Train(several, 256, 15), expected);
  }
}

TEST_F(SessionPlacementTest, ExplainsWhatItDid) {
  BuildTowers(256);
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1, .placement = "search"});
  Train(session, 256, 12);
  const PlacementReport report = session.Explain();
  EXPECT_EQ(report.method, "search");
  EXPECT_GT(report.predicted_seconds, 0);
  EXPECT_GT(report.measured_seconds, 0);
  EXPECT_THAT(report.ToText(), HasSubstr("critical path: "));
  std::set<std::string> names;
  for (const auto& node : report.nodes) names.insert(node.name);
  EXPECT_TRUE(names.contains("v"));
  EXPECT_TRUE(names.contains(updates_[0]->name()));
}

TEST_F(SessionPlacementTest, ManualSessionsAreExplainedToo) {
  BuildTowers(16);
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1});
  EXPECT_THAT(ErrorFrom([&] { session.Explain(); }), HasSubstr("no step was run yet"));
  Train(session, 4, 1);
  const PlacementReport report = session.Explain();
  EXPECT_EQ(report.method, "manual");
  for (const auto& node : report.nodes) EXPECT_THAT(node.device, ::testing::EndsWith("/cpu:0"));
}

// A variable stays where the first step that was placed has put it, for other sessions of the
// server as well, whatever part of the graph these run.
TEST_F(SessionPlacementTest, SessionsOfAServerAgreeOnWhereVariablesLive) {
  BuildTowers(128);
  Server server({.devices = 2, .cores_per_device = 1});
  Session trainer(graph_, {.server = &server, .placement = "search"});
  Train(trainer, 128, 2);
  Session reader(graph_, {.server = &server, .placement = "greedy"});
  for (const Output& variable : variables_) {
    const Tensor theirs = reader.Run(variable), ours = trainer.Run(variable);
    EXPECT_TRUE(theirs.BitwiseEquals(ours));
  }
}

TEST_F(SessionPlacementTest, AModelThatOneDeviceCannotHoldIsSpread) {
  const Shape shape = {64, 64};  // 16 KB
  const Output x = Placeholder(graph_, kFloat32, {2, 64}, "x");
  Output y = x;
  for (const char* name : {"v", "w"}) {
    const auto zeros = [=](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, shape)); };
    y = MatMul(y, Variable(graph_, {kFloat32, shape, zeros}, name));
  }
  Session session(
      graph_,
      {.devices = 2, .cores_per_device = 1, .placement = "search", .device_memory = 29'000});
  session.Initialize();
  session.Run({{x, Tensor::Zeros(kFloat32, {2, 64})}}, y);
  std::set<std::string> homes;
  for (const auto& node : session.Explain().nodes) {
    if (node.op == "Variable") homes.insert(node.device);
  }
  EXPECT_EQ(homes.size(), 2);
}

TEST_F(SessionPlacementTest, WhatFitsNowhereIsAnErrorBeforeTheRun) {
  BuildTowers(64);
  Session session(
      graph_,
      {.devices = 2, .cores_per_device = 1, .placement = "search", .device_memory = 10'000});
  EXPECT_THAT(ErrorFrom([&] { session.Initialize(); }),
              ::testing::AllOf(HasSubstr("does not fit into the memory of /job:local/task:0/cpu:"),
                               HasSubstr("above the limit of 10 KB"), HasSubstr("16.38 KB")));
  // The session is as usable as before.
  const Output y = Add(Constant(graph_, Tensor::Scalar(1.0f)), 1.0f);
  EXPECT_EQ(session.Run(y).scalar<float>(), 2.0f);
}

TEST_F(SessionPlacementTest, UnknownMethodsAreNamed) {
  EXPECT_THAT(ErrorFrom([&] { Session(graph_, {.placement = "magic"}); }),
              HasSubstr("placement is \"magic\"; expected manual, greedy or search"));
}

TEST_F(SessionPlacementTest, ABodyThatAsksForTwoDevicesIsAnError) {
  const Output p = Placeholder(graph_, kBool, Shape{}, "p");
  const Output x = Placeholder(graph_, kFloat32, Shape{2}, "x");
  const auto branch = [&](const char* device) {
    return [&, device] {
      const Output y = Neg(x);
      const DeviceScope scope(y.graph(), device);
      return std::vector{Abs(y)};
    };
  };
  const Output both = If(p, branch("/cpu:0"), branch("/cpu:1"))[0];
  const Output one = If(p, branch("/cpu:1"), branch("/cpu:1"))[0];
  for (const char* method : {"manual", "search"}) {
    SCOPED_TRACE(method);
    Session session(graph_, {.devices = 2, .cores_per_device = 1, .placement = method});
    const std::vector<Feed> feeds = {{p, Tensor::Scalar(true)}, {x, Tensor::Zeros(kFloat32, {2})}};
    EXPECT_THAT(ErrorFrom([&] { session.Run(feeds, std::span(&both, 1)); }),
                ::testing::AllOf(HasSubstr("stays whole on one device"), HasSubstr("\"/cpu:0\""),
                                 HasSubstr("\"/cpu:1\"")));
    session.Run(feeds, std::span(&one, 1));
    for (const auto& node : session.Explain().nodes) {
      if (node.op != "If") continue;
      EXPECT_THAT(node.device, ::testing::EndsWith("/cpu:1"));
    }
  }
}

}  // namespace
}  // namespace tutti
