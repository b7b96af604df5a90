#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tutti {

// The cores that the calling thread may run on, at least 1. A launcher or taskset may have left it
// fewer than the machine has, which std::thread::hardware_concurrency does not tell; a container
// may be given less time than they have (CgroupCores).
int UsableCores();

// Does this process have one core for all its threads? A thread that waits for another one of them
// must then give the core away. Costs a load.
bool HasOneCore();

// The limit on processor time that the control groups of this process set (cpu.max, or cfs_quota_us
// of version 1), in cores; 0: no limit. Containers are limited this way although they see every
// core of their host. `root` is where /proc and /sys are, for tests.
double CgroupCores(const std::string& root = "");

// Their numbers, ascending. Empty where the system does not tell.
std::vector<int> NumbersOfUsableCores();

// The same by NUMA node, of nodes that have some of them; all in one where the system does not
// tell. `root` is where /sys is, for tests.
std::vector<std::vector<int>> UsableCoresByNode(const std::string& root = "");

// Keeps all threads of this process, and those they start later, on these cores.
// REQUIRES: not empty.
absl::Status RunOnCores(std::span<const int> cores);

// Keeps the calling thread, and those it starts later, on these cores. REQUIRES: not empty.
absl::Status RunThreadOnCores(std::span<const int> cores);

// Moves the calling thread to one of these cores, ascending, unless it runs on one or may not. It
// stays free to run elsewhere. Costs some 30 ns when there is nothing to do.
void MoveThreadTo(std::span<const int> cores);

// The part of `cores` for number `index` of `count` that share them: whole cores in one piece, as
// even as can be. Where there are fewer cores than sharers each gets one, in turn.
std::vector<int> ShareOfCores(std::span<const int> cores, int index, int count);

// What a process may use: its host, by any text that differs between hosts, and its cores there,
// ascending.
struct CoreClaim {
  std::string host;
  std::vector<int> cores;
};

// Divides cores among processes that may all use them, and returns the cores of each. Processes of
// one host with the same cores get their ShareOfCores, in the order of the claims. If claims
// overlap but differ, a core goes to the claimant with the fewest cores so far, and a process that
// gets none keeps its whole claim. Cores that only one process claims stay with it.
std::vector<std::vector<int>> DivideCores(std::span<const CoreClaim> claims);

}  // namespace tutti
