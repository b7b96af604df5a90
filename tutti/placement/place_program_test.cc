#include "tutti/placement/place_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/autodiff/gradients.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"
#include "tutti/placement/testing.h"

namespace tutti::placement {
namespace {

using testing::HasSubstr;

constexpr std::string_view kTwoBranches = R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
v = Variable() {dtype=float32, shape=[100, 100]}
w = Variable() {dtype=float32, shape=[100, 100]}
a = MatMul(x, v)
b = MatMul(x, w)
a2 = MatMul(a, a)
b2 = MatMul(b, b)
sum = Add(a2, b2)
feed x
fetch sum
)";

TEST(PlaceProgram, NodesAskForWhatWasDecided) {
  const Program program = ProgramOf(kTwoBranches);
  const Machines machines = DevicesOfOneTask(2);
  StateHomes homes;
  const auto placed = PlaceProgram(program, machines, homes, {.method = Method::kSearch});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NE(placed->program.graph->Find("a")->device(), placed->program.graph->Find("b")->device());
  EXPECT_EQ(homes.Find(*program.graph->Find("v")), placed->program.graph->Find("a")->device());
  EXPECT_EQ(homes.Find(*program.graph->Find("w")), placed->program.graph->Find("b")->device());
}

TEST(PlaceProgram, StateStaysWhereItIs) {
  const Machines machines = DevicesOfOneTask(2);
  const Program program = ProgramOf(kTwoBranches);
  StateHomes homes;
  homes.Set(*program.graph->Find("v"), "/job:local/task:0/cpu:1");
  homes.Set(*program.graph->Find("w"), "/job:local/task:0/cpu:1");
  homes.Set(*program.graph->Find("w"), "/job:local/task:0/cpu:0");  // the first counts
  const auto placed = PlaceProgram(program, machines, homes, {.method = Method::kSearch});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_EQ(placed->program.graph->Find("v")->device(), "/job:local/task:0/cpu:1");
  EXPECT_EQ(placed->program.graph->Find("w")->device(), "/job:local/task:0/cpu:1");
}

TEST(PlaceProgram, StateIsPlacedForTrainingWhicheverStepRunsFirst) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 100}, "x");
  std::vector<Output> towers, variables;
  for (const char* name : {"v", "w"}) {
    variables.push_back(Variable(graph, RandomUniform({100, 100}, -1, 1), name));
    towers.push_back(MatMul(MatMul(x, variables.back()), variables.back()));
  }
  const Output loss = Mean(Square(towers[0] - towers[1]));
  const std::vector<Output> gradients = Gradients(loss, variables);
  for (size_t i = 0; i < 2; ++i) AssignSub(variables[i], gradients[i]);
  const Machines machines = DevicesOfOneTask(2, 0, MachineSpeed::Typical());
  StateHomes homes;
  // An evaluation: one of them alone.
  StepRequest like;
  like.feeds.push_back({x, {kFloat32, {512, 100}}});
  like.fetches.push_back(towers[0]);
  const absl::Status status = PlaceState(graph, like, machines, homes, {.method = Method::kSearch});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_FALSE(homes.Find(*variables[0].node).empty());
  EXPECT_NE(homes.Find(*variables[0].node), homes.Find(*variables[1].node));
}

TEST(PlaceProgram, TheReportTellsWhyWhenAndWhat) {
  const Program program = ProgramOf(kTwoBranches);
  const Machines machines = DevicesOfOneTask(2);
  StateHomes homes;
  const auto placed =
      PlaceProgram(program, machines, homes, {.method = Method::kGreedy, .report = true});
  ASSERT_TRUE(placed.ok()) << placed.status();
  PlacementReport report = placed->report;
  report.SetMeasured({{"a", 0.003}}, 0.008);
  const std::string text = report.ToText();
  EXPECT_THAT(text, HasSubstr("placement greedy: greedy, "));
  EXPECT_THAT(text, HasSubstr("measured 8 ms"));
  EXPECT_THAT(text, HasSubstr("critical path: "));
  EXPECT_THAT(text, HasSubstr("MatMul \"a\" on /job:local/task:0/cpu:"));
  EXPECT_THAT(text, HasSubstr("would end: /job:local/task:0/cpu:0 at "));
  EXPECT_EQ(PlacementReport::FromJson(report.ToJson()).ToJson(), report.ToJson());
  EXPECT_THAT(report.ToSvg(), testing::StartsWith("<svg"));
  EXPECT_THAT(report.ToSvg(), HasSubstr("critical path"));
}

TEST(PlaceProgram, MeasuredTimesReplaceEstimates) {
  const Program program = ProgramOf(kTwoBranches);
  const Machines machines = DevicesOfOneTask(2);
  StateHomes homes;
  const MeasuredSeconds measured = {{"a", 1}, {"b", 1e-6}};
  const auto placed =
      PlaceProgram(program, machines, homes, {.method = Method::kSearch, .measured = &measured});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NEAR(placed->seconds, 1, 0.01);
}

TEST(PlaceProgram, ManualIsOnlyPredicted) {
  const Program program = ProgramOf(kTwoBranches);
  const Machines machines = DevicesOfOneTask(2);
  StateHomes homes;
  const auto placed =
      PlaceProgram(program, machines, homes, {.method = Method::kManual, .report = true});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NEAR(placed->seconds, 8e-3, 1e-3);
  EXPECT_TRUE(homes.Find(*program.graph->Find("v")).empty());
}

}  // namespace
}  // namespace tutti::placement
