#include "tutti/placement/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/placement/testing.h"

namespace tutti::placement {
namespace {

// A product of 10 x 10 takes 2 us. x is 400 bytes.
constexpr std::string_view kTwoBranches = R"(
x = Variable() {dtype=float32, shape=[10, 10]}
a = MatMul(x, x)
b = MatMul(x, x)
c = MatMul(a, b)
fetch c
)";

class SimulateTest : public testing::Test {
 protected:
  // Simulates with the group of each node, by name, on a device; others on device 0.
  Simulation Run(std::string_view text, const std::map<std::string, int>& devices) {
    program_ = ProgramOf(text);
    machines_ = DevicesOfOneTask(2);
    auto costs = CostsOf(program_, machines_, {});
    EXPECT_TRUE(costs.ok()) << costs.status();
    costs_ = *std::move(costs);
    device_.assign(costs_.groups.size(), 0);
    for (const auto& [name, d] : devices) {
      device_[costs_.group[size_t(program_.graph->Find(name)->id())]] = d;
    }
    return Simulate(costs_, device_);
  }
  double EndOf(const Simulation& simulation, std::string_view name) const {
    return simulation.end[size_t(program_.graph->Find(name)->id())];
  }
  std::vector<std::string> Path(const Simulation& simulation) const {
    std::vector<std::string> names;
    for (const uint32_t n : CriticalPath(costs_, device_, simulation)) {
      names.push_back(costs_.NodeOf(n).name());
    }
    return names;
  }

  Program program_;
  Machines machines_;
  StepCosts costs_;
  std::vector<int> device_;
};

TEST_F(SimulateTest, OneDeviceDoesOneNodeAfterTheOther) {
  const Simulation simulation = Run(kTwoBranches, {});
  EXPECT_NEAR(simulation.seconds, 6e-6, 1e-12);
  EXPECT_NEAR(simulation.busy[0], 6e-6, 1e-12);
  EXPECT_EQ(simulation.busy[1], 0);
  EXPECT_THAT(simulation.transfers, testing::IsEmpty());
  // x, and a and b when c runs.
  EXPECT_EQ(simulation.peak_bytes[0], 4 * 400);
}

TEST_F(SimulateTest, TransfersTakeTimeAndHappenOnce) {
  const Simulation simulation = Run(kTwoBranches, {{"b", 1}});
  // x travels (1.4 us), b is computed (2 us) and travels back (1.4 us).
  EXPECT_NEAR(EndOf(simulation, "b"), 3.4e-6, 1e-12);
  EXPECT_NEAR(simulation.seconds, 6.8e-6, 1e-12);
  EXPECT_EQ(simulation.transfers.size(), 2);
  EXPECT_THAT(Path(simulation), testing::ElementsAre("x", "b", "c"));
}

TEST_F(SimulateTest, AValueThatTwoNodesReadCrossesOnce) {
  const Simulation simulation = Run(kTwoBranches, {{"a", 1}, {"b", 1}, {"c", 1}});
  EXPECT_EQ(simulation.transfers.size(), 1);
  EXPECT_NEAR(simulation.seconds, 1.4e-6 + 6e-6, 1e-12);
}

TEST_F(SimulateTest, ALinkCarriesOneValueAfterTheOther) {
  const Simulation simulation = Run(R"(
x = Variable() {dtype=float32, shape=[10, 10]}
y = Variable() {dtype=float32, shape=[10, 10]}
a = MatMul(x, y)
fetch a
)",
                                    {{"a", 1}});
  // Two times 0.4 us on the link, then its latency.
  EXPECT_NEAR(EndOf(simulation, "a"), 0.8e-6 + 1e-6 + 2e-6, 1e-12);
}

TEST_F(SimulateTest, ADeviceTakesTheFirstReadyNodeOfTheProgram) {
  const Simulation simulation = Run(R"(
x = Placeholder() {dtype=float32, shape=[10, 10]}
far = MatMul(x, x)
late = MatMul(far, x)
near = MatMul(x, x)
feed x
fetch late
fetch near
)",
                                    {{"far", 1}});
  // `late` waits for another device meanwhile `near` runs.
  EXPECT_LT(EndOf(simulation, "near"), EndOf(simulation, "late"));
}

TEST_F(SimulateTest, ConstantsAndFeedsAreRepeatedAndNotSent) {
  const Simulation simulation = Run(R"(
k = Constant() {value=float32 [2] {1, 2}}
x = Placeholder() {dtype=float32, shape=[2]}
y = Mul(k, x)
feed x
fetch y
)",
                                    {{"y", 1}});
  EXPECT_THAT(simulation.transfers, testing::IsEmpty());
}

TEST_F(SimulateTest, WhatIsFusedIsComputedInOnePass) {
  const Simulation fused = Run(R"(
x = Placeholder() {dtype=float32, shape=[100]}
y = Neg(x)
z = Relu(y)
feed x
fetch z
)",
                               {});
  // It reads x and writes z; y is neither written nor read.
  EXPECT_NEAR(fused.seconds, 800e-9, 1e-12);
}

}  // namespace
}  // namespace tutti::placement
