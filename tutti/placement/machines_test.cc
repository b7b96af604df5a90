#include "tutti/placement/machines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::placement {
namespace {

using testing::HasSubstr;

absl::StatusOr<Machines> Parse(std::string_view text) {
  return ParseMachines(text, "cluster.toml", MachineSpeed::Typical());
}

TEST(Machines, AFileHasTasksDevicesAndLinks) {
  const auto machines = Parse(R"(
[cluster]
ps = ["a:1"]
worker = ["a:2", "b:2"]
[device]
count = 2
cores = 4
memory = "1GiB"
[device.worker.1]
memory = "64MiB"
speed = 2
[host]
latency = "7us"
[network]
bandwidth = "10Gbit/s"
)");
  ASSERT_TRUE(machines.ok()) << machines.status();
  ASSERT_EQ(machines->size(), 6);
  EXPECT_EQ(machines->devices[1].name, "/job:ps/task:0/cpu:1");
  EXPECT_EQ(machines->devices[1].cores, 4);
  EXPECT_EQ(machines->devices[3].memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(machines->devices[5].memory_bytes, int64_t{64} << 20);
  EXPECT_EQ(machines->speed[5], 2);
  EXPECT_EQ(machines->Between(0, 1).latency, MachineSpeed::Typical().same_task.latency);
  EXPECT_EQ(machines->Between(0, 2).latency, 7e-6);
  EXPECT_EQ(machines->Between(0, 4).bytes_per_second, 1.25e9);
}

TEST(Machines, MistakesAreNamed) {
  const auto error = [](std::string_view text) {
    return std::string(MessageOf(Parse(text).status()));
  };
  EXPECT_THAT(error(""), HasSubstr("cluster.toml: there is no [cluster]"));
  EXPECT_THAT(error("[cluster]\nworker = 2"), HasSubstr("cluster.worker"));
  EXPECT_THAT(error("[cluster]\nworker = [\"a:1\"]\n[device]\ncores = 0"),
              HasSubstr("device.cores: expected"));
  EXPECT_THAT(error("[cluster]\nworker = [\"a:1\"]\n[device]\nmemory = \"much\""),
              HasSubstr("device.memory: "));
  EXPECT_THAT(error("[links]\na = 1"), HasSubstr("links is not known"));
  EXPECT_THAT(error("[cluster]\nworker = [\"a:1\"]\n[device.wroker.0]\ncores = 1"),
              HasSubstr("device.wroker: [cluster] has no job of this name"));
  EXPECT_THAT(
      error("[cluster]\nworker = [\"a:1\"]\n[device.worker.1]\ncores = 1"),
      HasSubstr("device.worker.1: expected a table of a task, [device.worker.0]; the job has 1"));
  EXPECT_THAT(error("[cluster"), HasSubstr("cluster.toml:1"));
}

TEST(Machines, TasksAreToldApartByName) {
  const DeviceInfo devices[] = {{.name = "/job:w/task:0/cpu:0", .type = "cpu"},
                                {.name = "/job:w/task:0/cpu:1", .type = "cpu"},
                                {.name = "/job:w/task:1/cpu:0", .type = "cpu"}};
  const MachineSpeed speed = MachineSpeed::Typical();
  const Machines machines = MakeMachines(devices, speed);
  EXPECT_EQ(machines.Between(0, 1), speed.same_task);
  EXPECT_EQ(machines.Between(1, 2), speed.network);
}

}  // namespace
}  // namespace tutti::placement
