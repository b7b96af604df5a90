#include "tutti/placement/placer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <source_location>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/initializers.h"
#include "tutti/placement/testing.h"

namespace tutti::placement {
namespace {

using testing::HasSubstr;

// "cpu:0" of each node of the text, by name.
class PlacerTest : public testing::TestWithParam<Method> {
 protected:
  void Place(std::string_view text, Machines machines) {
    program_ = ProgramOf(text);
    machines_ = std::move(machines);
    auto costs = CostsOf(program_, machines_, {});
    ASSERT_TRUE(costs.ok()) << costs.status();
    costs_ = *std::move(costs);
    plan_ = MakePlan(costs_, {.method = GetParam(), .keep_finish = true});
  }
  int DeviceOf(std::string_view name) const {
    return plan_->device[costs_.group[size_t(program_.graph->Find(name)->id())]];
  }

  Program program_;
  Machines machines_;
  StepCosts costs_;
  absl::StatusOr<Plan> plan_ = absl::UnknownError("not placed");
};

INSTANTIATE_TEST_SUITE_P(Methods, PlacerTest, testing::Values(Method::kGreedy, Method::kSearch),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Two chains of products of 2 ms each, joined at the end.
constexpr std::string_view kTwoBranches = R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
a1 = MatMul(x, x)
b1 = MatMul(x, x)
a2 = MatMul(a1, a1)
b2 = MatMul(b1, b1)
sum = Add(a2, b2)
feed x
fetch sum
)";

TEST_P(PlacerTest, BranchesGoToDevicesOfTheirOwn) {
  Place(kTwoBranches, DevicesOfOneTask(2));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_EQ(DeviceOf("a1"), DeviceOf("a2"));
  EXPECT_EQ(DeviceOf("b1"), DeviceOf("b2"));
  EXPECT_NE(DeviceOf("a1"), DeviceOf("b1"));
  EXPECT_LT(plan_->simulation.seconds, 0.6 * 8e-3);
}

TEST_P(PlacerTest, AChainStaysOnOneDevice) {
  Place(R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
a = MatMul(x, x)
b = MatMul(a, a)
c = MatMul(b, b)
feed x
fetch c
)",
        DevicesOfOneTask(4));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_THAT(plan_->device, testing::Each(plan_->device[0]));
}

TEST_P(PlacerTest, TransfersThatCostMoreThanTheyBringAreNotMade) {
  MachineSpeed slow = RoundSpeed();
  slow.same_task.latency = 1;
  Place(kTwoBranches, DevicesOfOneTask(2, 0, slow));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_THAT(plan_->simulation.transfers, testing::IsEmpty());
}

TEST_P(PlacerTest, AFasterDeviceIsTaken) {
  Machines machines = DevicesOfOneTask(2);
  machines.speed[1] = 4;
  Place(R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
a = MatMul(x, x)
feed x
fetch a
)",
        std::move(machines));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_EQ(DeviceOf("a"), 1);
}

TEST_P(PlacerTest, WishesAreMet) {
  Place(R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
a = MatMul(x, x) @/cpu:2
b = MatMul(a, a) {_colocate="a"}
feed x
fetch b
)",
        DevicesOfOneTask(3));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_EQ(DeviceOf("a"), 2);
  EXPECT_EQ(DeviceOf("b"), 2);
}

TEST_P(PlacerTest, AVariableTakesItsUpdatesAlongAndIsWhereItIsRead) {
  Place(R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
y = Placeholder() {dtype=float32, shape=[100, 100]}
v = Variable() {dtype=float32, shape=[100, 100]}
w = Variable() {dtype=float32, shape=[100, 100]}
a = MatMul(x, v)
b = MatMul(y, w)
da = MatMul(a, a)
db = MatMul(b, b)
ua = AssignSub(v, da)
ub = AssignSub(w, db)
feed x, y
target ua, ub
)",
        DevicesOfOneTask(2));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  EXPECT_EQ(DeviceOf("v"), DeviceOf("ua"));
  EXPECT_EQ(DeviceOf("w"), DeviceOf("ub"));
  EXPECT_EQ(DeviceOf("v"), DeviceOf("a"));
  EXPECT_EQ(DeviceOf("w"), DeviceOf("b"));
  EXPECT_NE(DeviceOf("v"), DeviceOf("w"));
  EXPECT_THAT(plan_->simulation.transfers, testing::IsEmpty());
}

TEST_P(PlacerTest, WhatDoesNotFitIntoOneDeviceIsSpread) {
  // Each variable has 40,000 bytes; three of them, and the values, do not fit into 100,000.
  constexpr std::string_view kLayers = R"(
x = Placeholder() {dtype=float32, shape=[2, 100]}
v1 = Variable() {dtype=float32, shape=[100, 100]}
v2 = Variable() {dtype=float32, shape=[100, 100]}
v3 = Variable() {dtype=float32, shape=[100, 100]}
a = MatMul(x, v1)
b = MatMul(a, v2)
c = MatMul(b, v3)
feed x
fetch c
)";
  Place(kLayers, DevicesOfOneTask(2, 100'000));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  for (const double peak : plan_->simulation.peak_bytes) EXPECT_LE(peak, 100'000);

  Place(kLayers, DevicesOfOneTask(2, 50'000));
  ASSERT_EQ(plan_.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(MessageOf(plan_.status())),
              testing::AllOf(HasSubstr("does not fit into the memory of /job:local/task:0/cpu:"),
                             HasSubstr("above the limit of 50 KB"), HasSubstr("Variable \"v")));
}

TEST_P(PlacerTest, CandidatesAndDecisionsAreKept) {
  Place(kTwoBranches, DevicesOfOneTask(2));
  ASSERT_TRUE(plan_.ok()) << plan_.status();
  const uint32_t g = costs_.group[size_t(program_.graph->Find("a1")->id())];
  ASSERT_EQ(plan_->finish[g].size(), 2);
  EXPECT_NEAR(plan_->finish[g][0], 2e-3, 1e-4);
}

TEST(Placer, HeavyNodesChooseFirstWhereThatIsBetter) {
  // One long chain, built last, and many short products: in the program's order the short ones
  // take both devices first.
  std::string text = "x = Placeholder() {dtype=float32, shape=[100, 100]}\n";
  for (int i = 0; i < 6; ++i) text += fmt::format("s{} = MatMul(x, x)\n", i);
  text += "l0 = MatMul(x, x)\n";
  for (int i = 1; i < 6; ++i) text += fmt::format("l{} = MatMul(l{}, x)\n", i, i - 1);
  text += "feed x\nfetch l5\n";
  for (int i = 0; i < 6; ++i) text += fmt::format("fetch s{}\n", i);
  const Program program = ProgramOf(text);
  const Machines machines = DevicesOfOneTask(2);
  const auto costs = CostsOf(program, machines, {});
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto plan = MakePlan(*costs, {.method = Method::kGreedy});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->how, HasSubstr("heavy"));
  EXPECT_NE(plan->device[costs->group[size_t(program.graph->Find("l0")->id())]],
            plan->device[costs->group[size_t(program.graph->Find("s0")->id())]]);
}

TEST(Placer, NamesOfMethods) {
  EXPECT_EQ(*ParseMethod("greedy"), Method::kGreedy);
  EXPECT_THAT(std::string(MessageOf(ParseMethod("best").status())),
              HasSubstr("placement is \"best\"; expected manual, greedy or search"));
}

// Two towers that meet, forward and back: what the search finds is near the best that there is.
TEST(Placer, TheSearchIsNearTheBestOfAllPlacements) {
  const Program program = ProgramOf(R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
y = Placeholder() {dtype=float32, shape=[100, 100]}
u1 = MatMul(x, x)
u2 = MatMul(u1, x)
i1 = MatMul(y, y)
i2 = MatMul(i1, y)
meet = MatMul(u2, i2)
du2 = MatMul(meet, u2)
di2 = MatMul(meet, i2)
du1 = MatMul(du2, u1)
di1 = MatMul(di2, i1)
extra = MatMul(u1, i1)
feed x, y
fetch du1
fetch di1
fetch extra
)");
  const Machines machines = DevicesOfOneTask(2);
  const auto costs = CostsOf(program, machines, {});
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto plan = MakePlan(*costs, {.method = Method::kSearch});
  ASSERT_TRUE(plan.ok()) << plan.status();
  double best = std::numeric_limits<double>::infinity();
  const size_t groups = costs->groups.size();
  ASSERT_LE(groups, 16u);
  for (uint32_t choice = 0; choice < uint32_t{1} << groups; ++choice) {
    std::vector<int> device;
    for (size_t g = 0; g < groups; ++g) device.push_back(int(choice >> g & 1));
    best = std::min(best, Simulate(*costs, device).seconds);
  }
  EXPECT_LE(plan->simulation.seconds, 1.1 * best);
}

// Errors ------------------------------------------------------------------------------------------

std::string ErrorOf(std::string_view text) {
  const Program program = ProgramOf(text);
  const Machines machines = DevicesOfOneTask(2);
  return std::string(MessageOf(CostsOf(program, machines, {}).status()));
}

TEST(Placer, ContradictionsAreErrorsThatNameWhoAndWhat) {
  EXPECT_THAT(ErrorOf(R"(
x = Placeholder() {dtype=float32, shape=[2]}
y = Neg(x) @/cpu:7
feed x
fetch y
)"),
              testing::AllOf(HasSubstr("Neg \"y\" asks for device \"/cpu:7\""),
                             HasSubstr("there are: /job:local/task:0/cpu:0")));
  EXPECT_THAT(ErrorOf(R"(
v = Variable() {dtype=float32, shape=[2]} @/cpu:0
m = Variable() {dtype=float32, shape=[2]} @/cpu:1
rate = Constant() {value=float32 [] {0.5}}
g = Placeholder() {dtype=float32, shape=[2]}
u = ApplyMomentum(v, m, rate, g)
feed g
target u
)"),
              testing::AllOf(HasSubstr("ApplyMomentum \"u\" needs its states on one device"),
                             HasSubstr("\"v\""), HasSubstr("\"m\"")));
  EXPECT_THAT(ErrorOf(R"(
x = Placeholder() {dtype=float32, shape=[2]}
a = Neg(x) {_colocate="b"}
b = Neg(a) {_colocate="a"}
feed x
fetch b
)"),
              HasSubstr("in a circle"));
}

// Where the program says it, the error gives the lines that set the wishes.
TEST(Placer, ErrorsNameTheLinesThatSetTheWishes) {
  Program program;
  Graph& graph = *program.graph;
  const Output gradient = Placeholder(graph, kFloat32, {2}, "g");
  const Output rate = Constant(graph, 0.5f);
  Output v, m;
  const auto line = std::source_location::current().line();
  {
    const DeviceScope first(graph, "/cpu:0");  // line + 2
    v = Variable(graph, Zeros({2}), "v");
  }
  {
    const DeviceScope second(graph, "/cpu:1");  // line + 6
    m = Variable(graph, Zeros({2}), "m");
  }
  program.feeds = {gradient};
  program.targets = {OpBuilder("ApplyMomentum", "u").In(v).In(m).In(rate).In(gradient).BuildNode()};
  EXPECT_THAT(std::string(MessageOf(CostsOf(program, DevicesOfOneTask(2), {}).status())),
              testing::AllOf(HasSubstr(fmt::format("\"/cpu:0\" (placer_test.cc:{})", line + 2)),
                             HasSubstr(fmt::format("\"/cpu:1\" (placer_test.cc:{})", line + 6))));
}

TEST(Placer, NodesGoWhereTheyHaveKernels) {
  RegisterCpuKernels();
  const DeviceInfo devices[] = {{.name = "/job:local/task:0/cpu:0", .type = "cpu"},
                                {.name = "/job:local/task:0/gpu:0", .type = "gpu"}};
  Machines machines = MakeMachines(devices, RoundSpeed());
  machines.speed[1] = 100;
  const Program anywhere = ProgramOf(R"(
x = Placeholder() {dtype=float32, shape=[2]}
y = Neg(x)
feed x
fetch y
)");
  const auto costs = CostsOf(anywhere, machines, {});
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto plan = MakePlan(*costs, {.method = Method::kSearch});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->device[costs->group[1]], 0);
  const Program there = ProgramOf(R"(
x = Placeholder() {dtype=float32, shape=[2]}
y = Neg(x) @/gpu:0
feed x
fetch y
)");
  EXPECT_THAT(std::string(MessageOf(CostsOf(there, machines, {}).status())),
              testing::AllOf(
                  HasSubstr("Neg \"y\" has no kernel on /job:local/task:0/gpu:0"),
                  HasSubstr("Neg \"y\" asks for device \"/gpu:0\"; there are kernels for: cpu")));
}

// A graph as large as people have, on as many devices. Its time is told by benchmarks; here it must
// only come to an end and be a plan.
TEST(Placer, PlacesAHundredThousandNodes) {
  Program program;
  Graph& graph = *program.graph;
  graph.Reserve(100'000);
  const Output x = Placeholder(graph, kFloat32, {64, 64}, "x");
  program.feeds = {x};
  std::mt19937 random(7);
  std::vector<Output> values = {x};
  while (graph.size() < 100'000) {
    const auto any = [&] {
      const size_t window = std::min<size_t>(values.size(), 2000);
      return values[values.size() - 1 - random() % window];
    };
    values.push_back(random() % 2 == 0 ? MatMul(any(), any()) : Add(any(), any()));
  }
  for (size_t i = values.size() - 100; i < values.size(); ++i) program.fetches.push_back(values[i]);
  const Machines machines = DevicesOfOneTask(64, 0, MachineSpeed::Typical());
  const auto costs = CostsOf(program, machines, {});
  ASSERT_TRUE(costs.ok()) << costs.status();
  const auto plan = MakePlan(*costs, {.method = Method::kSearch});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::vector<int> one(costs->groups.size(), 0);
  EXPECT_LT(plan->simulation.seconds, 0.5 * Simulate(*costs, one).seconds);
}

}  // namespace
}  // namespace tutti::placement
