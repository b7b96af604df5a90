#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::tools {

// What `tutti predict DIR` was asked for.
struct PredictOptions {
  std::string directory;
  std::vector<std::string> inputs;   // FILE.npy, or NAME=FILE.npy
  std::vector<std::string> outputs;  // NAME=FILE.npy to write; none: print
  int64_t batch_size = 500;
  int64_t rows = 10;  // of each prediction, that are printed
};

// Runs an exported model and prints its predictions, or writes them. Throws Error.
std::string Predict(const PredictOptions& options);

// What `tutti predict DIR` without input says: what the model takes and gives.
std::string DescribeModel(const std::string& directory);

}  // namespace tutti::tools
