#pragma once

#include <cstdint>
#include <string>

namespace tutti::tools {

struct CheckpointBench {
  std::string bytes = "500M";  // of all variables
  std::string folder = ".";    // a directory is made in it, and removed
  int rounds = 5;
  bool json = false;
};

// Saves and restores variables of so many bytes, as a training would: the time until a save is
// durable, how much longer the steps meanwhile take together than others, and the time of a restore
// with every checksum compared. Medians. Throws Error.
void BenchCheckpoint(const CheckpointBench& options);

}  // namespace tutti::tools
