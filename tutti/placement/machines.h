#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/device/device_info.h"
#include "tutti/placement/machine_speed.h"

namespace tutti::placement {

// The devices that a program may be placed on, how fast each is, and what lies between them. A
// value.
struct Machines {
  std::vector<DeviceInfo> devices;  // memory_bytes 0: no limit
  std::vector<double> speed;        // of each, against `machine`: 2 is twice as fast
  std::vector<int> task;            // of each, numbered from 0
  std::vector<int> host;            // of each, numbered from 0
  // By host: cores that all its devices share; 0: each device has cores of its own. Empty: all 0.
  std::vector<int> shared_cores;
  MachineSpeed machine;

  // Links between tasks that were measured, [task a][task b]. Where there is none, or it has no
  // bandwidth, one of `machine` is meant.
  std::vector<std::vector<topology::Link>> measured;

  int size() const { return int(devices.size()); }
  // What values pass from a device's task to that of another. REQUIRES: these are two tasks.
  void SetLink(int a, int b, const topology::Link& link);
  bool WasMeasured(int a, int b) const {
    return !measured.empty() &&
           measured[size_t(task[size_t(a)])][size_t(task[size_t(b)])].bytes_per_second > 0;
  }
  // What a value passes from device a to b. REQUIRES: a != b.
  const topology::Link& Between(int a, int b) const {
    if (task[size_t(a)] == task[size_t(b)]) return machine.same_task;
    if (WasMeasured(a, b)) return measured[size_t(task[size_t(a)])][size_t(task[size_t(b)])];
    return host[size_t(a)] == host[size_t(b)] ? machine.same_host : machine.network;
  }
};

// Devices by name alone: tasks are told apart by their names, and every task is on a host of its
// own, which never makes a transfer look cheaper than it is.
Machines MakeMachines(std::span<const DeviceInfo> devices, const MachineSpeed& machine);

// A cluster as a file describes it, for planning without it (tutti explain placement):
//
//   [cluster]                       # as `tutti server --config` reads it
//   worker = ["host0:2222", "host1:2222"]
//   [device]                        # all optional
//   count = 2                       # of every task (1)
//   cores = 4                       # of every device (1)
//   memory = "16GiB"                # that a device may use (no limit)
//   speed = 1.5                     # against the machine that plans (1)
//   [device.worker.1]               # the same keys for one task
//   memory = "64MiB"
//   [host]                          # between processes of a host
//   bandwidth = "4GB/s"
//   latency = "40us"
//   [network]                       # between hosts
//   bandwidth = "25Gbit/s"
//   latency = "20us"
//
// Tasks whose addresses have the same host are on one host. Links that are left out are those of
// `machine`. INVALID_ARGUMENT names the file, the key, what was found and what was expected.
absl::StatusOr<Machines> ParseMachines(std::string_view text, const std::string& file,
                                       const MachineSpeed& machine);
absl::StatusOr<Machines> ReadMachines(const std::string& path, const MachineSpeed& machine);

}  // namespace tutti::placement
