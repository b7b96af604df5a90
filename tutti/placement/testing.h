#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "tutti/compile/program_text.h"
#include "tutti/placement/step_costs.h"

// What the tests of this folder share. Included by tests only.
namespace tutti::placement {

// A machine in round figures: a matrix operation takes 1 ns, a byte of an element-wise pass 1 ns,
// a transfer 1 us and 1 ns a byte, and nodes have no overhead.
inline MachineSpeed RoundSpeed() {
  MachineSpeed speed;
  speed.kinds[size_t(WorkKind::kMatrix)].per_operation = 1e-9;
  speed.kinds[size_t(WorkKind::kElementwise)] = {0, 1e-9, 1e-9};
  speed.kinds[size_t(WorkKind::kFunction)] = {0, 1e-9, 1e-9};
  speed.same_task = {.bytes_per_second = 1e9, .latency = 1e-6};
  speed.same_host = speed.same_task;
  speed.network = speed.same_task;
  return speed;
}

// `count` devices of one task, each with one core and, if it is not 0, a limit of memory.
inline Machines DevicesOfOneTask(int count, int64_t memory = 0,
                                 const MachineSpeed& speed = RoundSpeed()) {
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    devices.push_back({.name = fmt::format("/job:local/task:0/cpu:{}", i),
                       .type = "cpu",
                       .memory_bytes = memory});
  }
  return MakeMachines(devices, speed);
}

inline Program ProgramOf(std::string_view text) {
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *std::move(program) : Program();
}

}  // namespace tutti::placement
