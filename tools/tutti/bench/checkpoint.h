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

// Saves and restores a training of so many bytes: the time until a save is durable, with nothing
// beside it and with the training going on; how much longer the steps meanwhile take together than
// others; the most memory meanwhile; and the time of a restore with every checksum compared.
// Medians. Throws Error.
void BenchCheckpoint(const CheckpointBench& options);

}  // namespace tutti::tools
