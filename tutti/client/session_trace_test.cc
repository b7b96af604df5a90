// What RunOptions{.trace = true} tells of a run, down into If and While, and that it can be
// written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/client/session_under_test.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

using ::tutti::testing::SessionUnderTest;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Outputs = std::vector<Output>;
using Variables = std::span<const Output>;

class SessionTraceTest : public ::testing::Test {
 protected:
  SessionTraceTest() { RegisterCpuKernels(); }

  RunTrace Trace(Session& session, std::initializer_list<Feed> feeds, Output fetch) {
    RunTrace trace;
    session.Run(feeds, fetch, {.trace = true, .trace_result = &trace});
    for (size_t i = 0; i < trace.nodes.size(); ++i) {
      const NodeTrace& node = trace.nodes[i];
      EXPECT_GE(node.start_nanos, i == 0 ? 0 : trace.nodes[i - 1].start_nanos) << node.name;
      EXPECT_GE(node.end_nanos, node.start_nanos) << node.name;
    }
    return trace;
  }

  static std::vector<std::string> Ops(const RunTrace& trace) {
    std::vector<std::string> ops;
    for (const NodeTrace& node : trace.nodes) ops.push_back(node.op);
    return ops;
  }

  static const NodeTrace* Find(const RunTrace& trace, const std::string& name) {
    for (const NodeTrace& node : trace.nodes) {
      if (node.name == name) return &node;
    }
    ADD_FAILURE() << "there is no " << name;
    return nullptr;
  }

  Graph graph_;
  Output x_ = Placeholder(graph_, kFloat32, {3}, "x");
  Tensor value_ = Tensor::Vector<float>({1, 2, 3});
};

TEST_F(SessionTraceTest, NamesEveryNodeInTheOrderOfTheStarts) {
  const Output y = Neg(Exp(x_, "exp"), "neg");
  SessionUnderTest session(graph_, {.optimize = false});
  const RunTrace trace = Trace(session, {{x_, value_}}, y);
  EXPECT_THAT(Ops(trace), ElementsAre("Exp", "Neg"));
  EXPECT_EQ(trace.nodes[0].name, "exp");
  EXPECT_EQ(trace.nodes[0].device, "/job:local/task:0/cpu:0");
  EXPECT_EQ(trace.nodes[0].bytes, 12);
  EXPECT_GT(trace.arena_bytes, 0);
}

TEST_F(SessionTraceTest, TellsWhatIsAliveAtThePeak) {
  const Output wide = Concat({x_, x_, x_, x_}, 0, "wide");
  const Output y = Exp(Neg(Concat({wide, wide}, 0, "wider")));
  SessionUnderTest session(graph_, {.optimize = false});
  const RunTrace trace = Trace(session, {{x_, value_}}, y);
  ASSERT_EQ(trace.peaks.size(), 1u);
  EXPECT_EQ(trace.peaks[0].device, "/job:local/task:0/cpu:0");
  EXPECT_EQ(trace.peaks[0].node, "wider");
  ASSERT_EQ(trace.peaks[0].values.size(), 2u);
  EXPECT_EQ(trace.peaks[0].values[0].name, "wider");
  EXPECT_EQ(trace.peaks[0].values[0].bytes, 96);
  EXPECT_EQ(trace.peaks[0].values[1].name, "wide");
  EXPECT_EQ(trace.peaks[0].values[1].bytes, 48);
}

TEST_F(SessionTraceTest, MergesDevicesByTime) {
  Output y = x_;
  for (int i = 0; i < 6; ++i) {
    DeviceScope scope(graph_, i % 2 == 0 ? "/cpu:0" : "/cpu:1");
    y = Neg(y);
  }
  SessionUnderTest session(graph_, {.devices = 2, .cores_per_device = 1, .optimize = false});
  const RunTrace trace = Trace(session, {{x_, value_}}, y);
  const auto ops = Ops(trace);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Neg"), 6);
  for (const char* device : {"/job:local/task:0/cpu:0", "/job:local/task:0/cpu:1"}) {
    EXPECT_TRUE(std::any_of(trace.nodes.begin(), trace.nodes.end(), [&](const NodeTrace& node) {
      return node.device == device;
    })) << device;
  }
}

TEST_F(SessionTraceTest, ShowsTheBodiesOfLoops) {
  const Output n = Placeholder(graph_, kInt64, Shape{}, "n");
  const Output end = While(
      {ZerosLike(n), x_}, [&](Variables v) { return Less(v[0], n, "again"); },
      [&](Variables v) {
        return Outputs{Add(v[0], 1), Exp(v[1], "exp")};
      },
      {}, "loop")[1];
  SessionUnderTest session(graph_);
  const RunTrace trace = Trace(session, {{x_, value_}, {n, Tensor::Scalar<int64_t>(3)}}, end);
  int exps = 0, conditions = 0;
  const NodeTrace* const loop = Find(trace, "loop");
  ASSERT_NE(loop, nullptr);
  for (const NodeTrace& node : trace.nodes) {
    exps += node.name == "loop/body/exp";
    conditions += node.name == "loop/condition/again";
    if (!node.name.starts_with("loop/")) continue;
    EXPECT_GE(node.start_nanos, loop->start_nanos) << node.name;
    EXPECT_LE(node.end_nanos, loop->end_nanos) << node.name;
  }
  EXPECT_EQ(exps, 3);
  EXPECT_EQ(conditions, 4);
}

TEST_F(SessionTraceTest, ShowsThatBodiesAreOptimizedLikeTheGraphAroundThem) {
  const Output p = Placeholder(graph_, kBool, Shape{}, "p");
  const Output y = If(
      p, [&] { return Outputs{Neg(Exp(Square(x_)))}; }, [&] { return Outputs{x_}; })[0];
  const auto ops = [&](bool optimize) {
    SessionUnderTest session(graph_, {.optimize = optimize});
    return Ops(Trace(session, {{x_, value_}, {p, Tensor::Scalar(true)}}, y));
  };
  EXPECT_THAT(ops(false), ElementsAre("If", "Square", "Exp", "Neg"));
  EXPECT_THAT(ops(true), ElementsAre("If", "_FusedElementwise"));
}

TEST_F(SessionTraceTest, NeedsSomewhereToGo) {
  SessionUnderTest session(graph_);
  try {
    session.Run({{x_, value_}}, x_, {.trace = true});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_STREQ(error.what(),
                 "RunOptions::trace is set without a trace_result; give the RunTrace that is to be "
                 "filled");
  }
}

TEST_F(SessionTraceTest, IsLeftAloneByARunThatFails) {
  const Output bad = CheckNumerics(Log(x_), "here");
  SessionUnderTest session(graph_);
  RunTrace trace;
  trace.nodes.push_back({.name = "mine"});
  EXPECT_THROW(session.Run({{x_, Tensor::Vector<float>({-1, 0, 1})}}, bad,
                           {.trace = true, .trace_result = &trace}),
               Error);
  ASSERT_EQ(trace.nodes.size(), 1u);
  EXPECT_EQ(trace.nodes[0].name, "mine");
}

TEST_F(SessionTraceTest, IsWrittenAsChromeTrace) {
  const Output y = Exp(x_, "exp");
  SessionUnderTest session(graph_);
  const RunTrace trace = Trace(session, {{x_, value_}}, y);
  const tutti::testing::TemporaryDirectory folder;
  const std::string path = folder / "trace.json";
  trace.WriteChromeTrace(path);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(R"("ph":"X","name":"exp","cat":"Exp")"));
  EXPECT_THAT(text.str(), HasSubstr(R"("args":{"op":"Exp","bytes":12})"));
  try {
    trace.WriteChromeTrace("/nowhere/trace.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cannot write /nowhere/trace.json: No such file"));
  }
}

}  // namespace
}  // namespace tutti
