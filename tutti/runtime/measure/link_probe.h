#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/device/device_info.h"
#include "tutti/placement/machines.h"
#include "tutti/runtime/worker.h"

namespace tutti {

// What was measured between tasks, by their names in alphabetical order.
using TaskLinks = std::map<std::pair<std::string, std::string>, topology::Link>;

// How many tasks are measured pair by pair: 28 pairs, some 10 ms each.
inline constexpr size_t kMostPairedTasks = 8;

// Measures latency and bandwidth between tasks of which `links` does not know them, and adds them:
// steps in which values go to and fro between the first devices of two tasks, over the same links
// as the values of any step. Up to kMostPairedTasks tasks, every pair is measured; of more, every
// task and `home`, and two others are taken to be as far apart as the slower of them is from
// `home`. A pair that fails is left out, and logged.
// REQUIRES: `devices` lists devices of `home` first and only those of tasks that `workers` has.
void ProbeTaskLinks(const WorkersByTask& workers, const std::string& home,
                    const std::vector<DeviceInfo>& devices, TaskLinks& links);

// Sets the measured links between those tasks that `machines` contains.
void UseLinks(const TaskLinks& links, placement::Machines& machines);

}  // namespace tutti
