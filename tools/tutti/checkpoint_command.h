#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/status.h"

// `tutti inspect` and `tutti convert`.
namespace tutti::tools {

struct InspectOptions {
  std::string path;    // a checkpoint, a model directory (its newest one), or a safetensors file
  bool json = false;   // one object
  bool verify = true;  // read everything and compare checksums
};
// What is in it, and whether it is whole. An error of code DATA_LOSS names what is damaged; the
// listing has been printed then.
absl::Status Inspect(const InspectOptions& options);

struct ConvertOptions {
  std::string from;
  std::string to;
  bool weights = false;  // no slots of optimizers and no global step
  int64_t step = 0;      // of the checkpoint that is made from a safetensors file
};
// A checkpoint or model directory becomes one safetensors file, or such a file a checkpoint in the
// model directory `to`.
absl::Status Convert(const ConvertOptions& options);

}  // namespace tutti::tools
