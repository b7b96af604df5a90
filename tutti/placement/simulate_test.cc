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
    return RunOn(DevicesOfOneTask(2), text, devices);
  }
  Simulation RunOn(const Machines& machines, std::string_view text,
                   const std::map<std::string, int>& devices) {
    program_ = ProgramOf(text);
    machines_ = machines;
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

// Of two cores that share a bus each is slower while the other is at work.
TEST_F(SimulateTest, CoresOfAHostAreSlowerTogether) {
  constexpr std::string_view kFedBranches = R"(
x = Placeholder() {dtype=float32, shape=[10, 10]}
a = MatMul(x, x)
b = MatMul(x, x)
c = MatMul(b, b)
feed x
fetch a
fetch c
)";
  MachineSpeed speed = RoundSpeed();
  speed.cores = 2;
  speed.crowded = speed.kinds;
  speed.crowded[size_t(WorkKind::kMatrix)].per_operation = 1.5e-9;
  const Simulation together = RunOn(DevicesOfOneTask(2, 0, speed), kFedBranches, {{"a", 1}});
  EXPECT_NEAR(EndOf(together, "a"), 3e-6, 1e-12);
  EXPECT_NEAR(EndOf(together, "b"), 3e-6, 1e-12);
  EXPECT_NEAR(EndOf(together, "c"), 5e-6, 1e-12);  // alone again
  const Simulation alone = RunOn(DevicesOfOneTask(2, 0, speed), kFedBranches, {});
  EXPECT_NEAR(alone.seconds, 6e-6, 1e-12);
  // Of eight cores two are a seventh of the way to all.
  speed.cores = 8;
  const Simulation few = RunOn(DevicesOfOneTask(2, 0, speed), kFedBranches, {{"a", 1}});
  EXPECT_NEAR(EndOf(few, "a"), 2e-6 * (1 + 0.5 / 7), 1e-12);
  // On hosts of their own, they do not meet.
  Machines apart = DevicesOfOneTask(2, 0, speed);
  apart.host = {0, 1};
  EXPECT_NEAR(EndOf(RunOn(apart, kFedBranches, {{"a", 1}}), "a"), 2e-6, 1e-12);
  // Two devices that have one core between them take turns.
  Machines shared = DevicesOfOneTask(2);
  shared.shared_cores = {1};
  EXPECT_NEAR(EndOf(RunOn(shared, kFedBranches, {{"a", 1}}), "a"), 4e-6, 1e-12);
}

// A device that has had nothing to do for long sleeps, and takes a while to wake up.
TEST_F(SimulateTest, ADeviceThatWaitsForLongSleeps) {
  constexpr std::string_view kToAndFro = R"(
x = Placeholder() {dtype=float32, shape=[100, 100]}
a = MatMul(x, x)
b = Relu(a)
c = MatMul(b, x)
feed x
fetch c
)";
  MachineSpeed speed = RoundSpeed();
  const Machines awake = DevicesOfOneTask(2, 0, speed);
  speed.wake_seconds = 50e-6;
  const Machines machines = DevicesOfOneTask(2, 0, speed);
  // One device never waits. With two, the second waits for 2 ms.
  EXPECT_EQ(RunOn(machines, kToAndFro, {}).seconds, RunOn(awake, kToAndFro, {}).seconds);
  EXPECT_NEAR(RunOn(machines, kToAndFro, {{"c", 1}}).seconds,
              RunOn(awake, kToAndFro, {{"c", 1}}).seconds + 50e-6, 1e-12);
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

// The product of a gradient goes straight into the variable: it is neither written nor read again.
TEST_F(SimulateTest, ADescentIsComputedWithItsProduct) {
  const Simulation simulation = Run(R"(
v = Variable() {dtype=float32, shape=[10, 10]}
rate = Constant() {value=float32 [] {0.5}}
x = Placeholder() {dtype=float32, shape=[10, 10]}
g = MatMul(x, x)
u = ApplyGradientDescent(v, rate, g)
feed x
target u
)",
                                    {});
  const auto group = [&](const char* name) {
    return costs_.group[size_t(program_.graph->Find(name)->id())];
  };
  EXPECT_EQ(group("g"), group("u"));
  EXPECT_EQ(group("v"), group("u"));
  // The product, and a pass that reads the variable and the rate and writes the variable.
  EXPECT_NEAR(simulation.seconds, 2e-6 + 804e-9, 1e-12);
}

}  // namespace
}  // namespace tutti::placement
