#pragma once

#include <cstdint>
#include <string>

namespace tutti::tools {

struct CheckpointBench {
  std::string bytes = "500M";  // of variables and slots
  std::string folder = ".";    // a directory is made in it, and removed
  int rounds = 5;
  bool json = false;
};

// Saves and restores a training whose state has this many bytes. Measures the time until a save is
// durable, both while training is paused and while it continues; the additional time of all steps
// during a save; the peak memory; and the time of a restore that compares every checksum. Prints
// medians. Throws Error.
void BenchCheckpoint(const CheckpointBench& options);

}  // namespace tutti::tools
