#include "tutti/runtime/measure/link_probe.h"

#include <gtest/gtest.h>

#include "tutti/kernels/register.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/runtime/register.h"

namespace tutti {
namespace {

constexpr const char* kHere = "/job:worker/task:0";

// A task that has gone.
class LostWorker final : public Worker {
 public:
  void ListDevices(DevicesDone done) override {
    ++asked;
    done(Unavailable("it is lost"));
  }
  void Register(RegisterRequest, RegisterDone done) override {
    ++asked;
    done(Unavailable("it is lost"));
  }
  void Deregister(uint64_t) override {}
  void Run(RunRequest&&, RunDone done) override {
    RunResponse response;
    response.status = Unavailable("it is lost");
    done(std::move(response));
  }
  void Abort(const StepId&, absl::Status) override {}
  void CleanUp(const StepId&) override {}

  int asked = 0;  // how often, for its devices or to take part in a step
};

TEST(LinkProbe, ATaskThatIsLostIsLeftOutAndTriedAgain) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  const auto lost = std::make_shared<LostWorker>();
  const WorkersByTask workers = {
      {kHere, std::make_shared<LocalWorker>(LocalWorkerOptions{.job = "worker"})},
      {"/job:worker/task:1", lost}};
  const std::vector<DeviceInfo> devices = {{.name = "/job:worker/task:0/cpu:0", .type = "cpu"},
                                           {.name = "/job:worker/task:1/cpu:0", .type = "cpu"}};
  TaskLinks links;
  ProbeTaskLinks(workers, kHere, devices, links);
  EXPECT_TRUE(links.empty());
  const int before = lost->asked;
  EXPECT_GT(before, 0);
  ProbeTaskLinks(workers, kHere, devices, links);
  EXPECT_GT(lost->asked, before);
}

TEST(LinkProbe, WhatIsKnownIsNotMeasuredAgain) {
  const auto lost = std::make_shared<LostWorker>();
  const WorkersByTask workers = {
      {kHere, std::make_shared<LocalWorker>(LocalWorkerOptions{.job = "worker"})},
      {"/job:worker/task:1", lost}};
  const std::vector<DeviceInfo> devices = {{.name = "/job:worker/task:0/cpu:0", .type = "cpu"},
                                           {.name = "/job:worker/task:1/cpu:0", .type = "cpu"}};
  const topology::Link known{.bytes_per_second = 1e6, .latency = 1};
  TaskLinks links = {{{kHere, "/job:worker/task:1"}, known}};
  ProbeTaskLinks(workers, kHere, devices, links);
  EXPECT_EQ(lost->asked, 0);
  EXPECT_EQ(links.begin()->second, known);
}

TEST(LinkProbe, WhatWasMeasuredIsUsed) {
  std::vector<DeviceInfo> devices;
  for (const int task : {0, 1, 2}) {
    for (const int device : {0, 1}) {
      devices.push_back(
          {.name = "/job:worker/task:" + std::to_string(task) + "/cpu:" + std::to_string(device),
           .type = "cpu"});
    }
  }
  placement::Machines machines =
      placement::MakeMachines(devices, placement::MachineSpeed::Typical());
  const topology::Link slow{.bytes_per_second = 1e6, .latency = 1};
  UseLinks({{{"/job:worker/task:0", "/job:worker/task:2"}, slow}}, machines);
  for (const auto& [a, b] : {std::pair(0, 4), std::pair(1, 5), std::pair(5, 0)}) {
    EXPECT_EQ(machines.Between(a, b), slow) << a << " " << b;
    EXPECT_TRUE(machines.WasMeasured(a, b));
  }
  EXPECT_EQ(machines.Between(0, 2), machines.machine.network);
  EXPECT_FALSE(machines.WasMeasured(0, 2));
  EXPECT_EQ(machines.Between(0, 1), machines.machine.same_task);
}

}  // namespace
}  // namespace tutti
