// Sessions whose nodes the cost model places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <set>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/cores.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
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
  EXPECT_LT(report.measured_seconds, 0) << "one device is not timed";
}

// Where scopes put a step on two devices, its first runs are timed, without a trace of its nodes.
TEST_F(SessionPlacementTest, AManualStepOnTwoDevicesIsTimed) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {64, 64}, "x");
  Output y;
  {
    const DeviceScope second(graph, "/cpu:1");
    y = MatMul(x, x);
  }
  const Output sum = Sum(MatMul(y, y));
  SessionUnderTest session(graph, {.devices = 2, .cores_per_device = 1});
  const Tensor value = Tensor::Zeros(kFloat32, {64, 64});
  session.Run({{x, value}}, sum);
  EXPECT_LT(session.Explain().measured_seconds, 0) << "the first run fills caches";
  for (int i = 0; i < 12; ++i) session.Run({{x, value}}, sum);
  const PlacementReport report = session.Explain();
  EXPECT_EQ(report.method, "manual");
  EXPECT_GT(report.measured_seconds, 0);
  EXPECT_THAT(report.ToText(), AllOf(HasSubstr(", measured "), Not(HasSubstr("measured busy"))));
  std::set<std::string> devices;
  for (const auto& node : report.nodes) {
    devices.insert(node.device.substr(node.device.rfind('/')));
    EXPECT_LT(node.measured, 0) << node.name;
  }
  EXPECT_EQ(devices, (std::set<std::string>{"/cpu:0", "/cpu:1"}));
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
  const Output y = Add(Constant(graph_, Tensor::Scalar(1.0f)), 1.0f);
  for (const char* method : {"manual", "greedy", "search"}) {
    Session session(
        graph_,
        {.devices = 2, .cores_per_device = 1, .placement = method, .device_memory = 10'000});
    EXPECT_THAT(
        ErrorFrom([&] { session.Initialize(); }),
        ::testing::AllOf(HasSubstr("does not fit into the memory of /job:local/task:0/cpu:"),
                         HasSubstr("above the limit of 10 KB"), HasSubstr("16.38 KB")))
        << method;
    // The session is as usable as before.
    EXPECT_EQ(session.Run(y).scalar<float>(), 2.0f);
  }
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

// What was wrong is named, and the session goes on.
TEST_F(SessionPlacementTest, BadWishesAreErrorsAndTheSessionGoesOn) {
  const Output x = Placeholder(graph_, kFloat32, Shape{2}, "x");
  const auto on = [&](const char* device, const std::function<Output()>& build) {
    const DeviceScope scope(graph_, device);
    return build();
  };
  const Output good = Neg(x);
  const Output unknown = on("/cpu:7", [&] { return Neg(x, "unknown"); });
  const Output malformed = on("/cpu:x", [&] { return Neg(x, "malformed"); });
  const auto variable = [&](const char* device, const char* name) {
    return on(device, [&] {
      const auto zeros = [](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, {2})); };
      return Variable(graph_, {kFloat32, Shape{2}, zeros}, name);
    });
  };
  const Output v = variable("/cpu:0", "v");
  const Output update = on("/cpu:1", [&] { return AssignAdd(v, x, "update"); });
  // Two nodes, each of which is to lie beside the other.
  const auto beside = [&](const char* name, const char* other) {
    NodeSpec spec;
    spec.op = "Neg";
    spec.name = name;
    spec.inputs = {x};
    spec.attrs = {{"_colocate", std::string(other)}};
    return ValueOrThrow(AddNode(graph_, std::move(spec)))->output();
  };
  const Output first = beside("first", "second");
  const Output second = beside("second", "first");
  const Output both = first + second;
  struct Case {
    Output fetch;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {unknown, {"Neg \"unknown\"", "asks for device \"/cpu:7\"", "there are: ", "/cpu:1"}},
      {malformed, {"Neg \"malformed\"", "\"/cpu:x\""}},
      {update,
       {"AssignAdd \"update\"", "device \"/cpu:1\"", "Variable \"v\"", "lives on", "/cpu:0"}},
      {both, {"in a circle", "\"first\"", "\"second\""}}};
  const std::vector<Feed> feeds = {{x, Tensor::Of<float>({2}, {1, 2})}};
  for (const char* method : {"manual", "greedy", "search"}) {
    SCOPED_TRACE(method);
    SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1, .placement = method});
    for (const Case& bad : cases) {
      const std::string error = ErrorFrom([&] { session.Run(feeds, std::span(&bad.fetch, 1)); });
      for (const char* word : bad.words) EXPECT_THAT(error, HasSubstr(word));
      EXPECT_EQ(session.Run(feeds, std::span(&good, 1))[0].ToString(), "float32 [2] {-1, -2}");
    }
  }
}

// A process says it once, so that this needs one of its own.
TEST_F(SessionPlacementTest, MoreDevicesThanCoresIsAllowedAndSaid) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto train = [&] {
    BuildTowers(16);
    const int devices = UsableCores() + 1;
    Session session(graph_, {.devices = devices, .cores_per_device = 1, .placement = "search"});
    Train(session, 4, 2);
  };
  EXPECT_EXIT((train(), std::_Exit(0)), ::testing::ExitedWithCode(0),
              "devices of 1 core each share the .* core");
}

// Placing anew
// -------------------------------------------------------------------------------------

// Estimates take a loop to have ten turns. These have thousands, which only a measurement can tell.
class PlacedAnewTest : public SessionPlacementTest {
 protected:
  Output Loop(Output start) {
    return While(
        {Constant(graph_, Tensor::Scalar(int32_t{0})), start},
        [](std::span<const Output> v) { return Less(v[0], 3000); },
        [](std::span<const Output> v) {
          return std::vector<Output>{v[0] + 1, Tanh(v[1])};
        })[1];
  }
  Output Counter() {
    const auto zeros = [](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, {16})); };
    return Variable(graph_, {kFloat32, Shape{16}, zeros}, "count");
  }

  struct Seen {
    std::set<std::string> loops, states;  // devices
    bool operator==(const Seen&) const = default;
  };
  static Seen Look(const PlacementReport& report) {
    Seen seen;
    for (const auto& node : report.nodes) {
      if (node.op == "While") seen.loops.insert(node.device);
      if (node.op == "Variable" || node.op == "AssignAdd") seen.states.insert(node.device);
    }
    return seen;
  }

  // Runs `result` and an update of `count` as often. Gives what the log says.
  std::string RunSteps(Session& session, const std::vector<Output>& results, const Node* update,
                       int steps) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < steps; ++i) {
      session.Run({}, results, std::span(&update, 1), {.timeout = std::chrono::seconds(60)});
    }
    return ::testing::internal::GetCapturedStderr();
  }
};

constexpr const char* kPlacedAnew = "the step is placed anew";

TEST_F(PlacedAnewTest, WhatIsMeasuredToGainIsPlacedAnewOnceAndStateStays) {
  const Output count = Counter();
  const Output left = Loop(count + 1.0f), right = Loop(count - 1.0f);
  const Node* const update = AssignAdd(count, OnesLike(count)).node;
  Session session(graph_, {.devices = 2, .cores_per_device = 1, .placement = "search"});
  session.Initialize();
  // By the estimates, two small loops are not worth a transfer.
  EXPECT_THAT(RunSteps(session, {left, right}, update, 1), ::testing::Not(HasSubstr(kPlacedAnew)));
  const Seen before = Look(session.Explain());
  EXPECT_EQ(before.loops.size(), 1u);
  EXPECT_EQ(before.states.size(), 1u);
  const std::string log = RunSteps(session, {left, right}, update, 14);
  EXPECT_THAT(log, HasSubstr(kPlacedAnew));
  const Seen after = Look(session.Explain());
  EXPECT_EQ(after.loops.size(), 2u) << session.Explain().ToText();
  EXPECT_EQ(after.states, before.states);
  // Once: the second placement stays, and so does what the steps have counted.
  EXPECT_THAT(RunSteps(session, {left, right}, update, 25), ::testing::Not(HasSubstr(kPlacedAnew)));
  EXPECT_EQ(Look(session.Explain()), after);
  EXPECT_EQ(session.Run(count).data<float>()[0], 40.0f);
}

TEST_F(PlacedAnewTest, WhatCannotGainStaysWhereItIs) {
  const Output count = Counter();
  const Output end = Loop(Loop(count + 1.0f));  // one after the other
  const Node* const update = AssignAdd(count, OnesLike(count)).node;
  Session session(graph_, {.devices = 2, .cores_per_device = 1, .placement = "search"});
  session.Initialize();
  RunSteps(session, {end}, update, 1);
  const Seen before = Look(session.Explain());
  EXPECT_THAT(RunSteps(session, {end}, update, 30), ::testing::Not(HasSubstr(kPlacedAnew)));
  EXPECT_EQ(Look(session.Explain()), before);
  EXPECT_EQ(before.loops.size(), 1u);
}

}  // namespace
}  // namespace tutti
