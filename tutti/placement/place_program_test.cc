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

// Two cores that share all of a bus: what is computed at the same time takes twice as long.
Machines TwoDevicesThatCrowdEachOther() {
  MachineSpeed speed = RoundSpeed();
  speed.cores = 2;
  speed.crowded = speed.kinds;
  for (KindSpeed& kind : speed.crowded) {
    kind.per_operation *= 2;
    kind.per_byte_cached *= 2;
    kind.per_byte_memory *= 2;
  }
  return DevicesOfOneTask(2, 0, speed);
}

TEST(PlaceProgram, MeasuredNodesSlowEachOtherDown) {
  const Program program = ProgramOf(kTwoBranches);
  const Machines machines = TwoDevicesThatCrowdEachOther();
  const std::string zero = machines.devices[0].name, one = machines.devices[1].name;
  // Measured one after the other on one device, at the same time on two.
  for (const bool together : {false, true}) {
    SCOPED_TRACE(together);
    const double each = together ? 2 : 1;
    const MeasuredSeconds measured = {{"a", each}, {"b", each}, {"a2", each}, {"b2", each}};
    std::unordered_map<std::string, std::string> current;
    for (const auto& node : program.graph->nodes()) {
      const bool other = node->name().starts_with("b") || node->name() == "w";
      current[node->name()] = together && other ? one : zero;
    }
    for (const Method method : {Method::kGreedy, Method::kSearch}) {
      StateHomes homes;
      const auto placed = PlaceProgram(
          program, machines, homes, {.method = method, .measured = &measured, .current = &current});
      ASSERT_TRUE(placed.ok()) << placed.status();
      EXPECT_NEAR(placed->current_seconds, 4, 0.1);
      EXPECT_NEAR(placed->seconds, 4, 0.1);
    }
  }
}

// What took so long on one core takes half of it on two, where the node shares its work.
TEST(PlaceProgram, MeasuredTimesFollowTheCoresOfDevices) {
  const Program program = ProgramOf(R"(
x = Placeholder() {dtype=float32, shape=[500, 500]}
a = MatMul(x, x)
feed x
fetch a
)");
  const std::vector<DeviceInfo> devices = {
      {.name = "/job:local/task:0/cpu:0", .type = "cpu", .cores = 2},
      {.name = "/job:local/task:0/cpu:1", .type = "cpu"}};
  const Machines machines = MakeMachines(devices, RoundSpeed());
  const MeasuredSeconds measured = {{"a", 1}};
  const std::unordered_map<std::string, std::string> current = {{"x", "/job:local/task:0/cpu:1"},
                                                                {"a", "/job:local/task:0/cpu:1"}};
  StateHomes homes;
  const auto placed =
      PlaceProgram(program, machines, homes,
                   {.method = Method::kGreedy, .measured = &measured, .current = &current});
  ASSERT_TRUE(placed.ok()) << placed.status();
  EXPECT_NEAR(placed->current_seconds, 1, 1e-6);
  EXPECT_NEAR(placed->seconds, 0.5, 1e-6);
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
