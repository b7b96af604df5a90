#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Saving and restoring variables, on the device that has them. tutti/checkpoint has the kernels.
//
// A save has two halves, so that training goes on while files are written: TakeSnapshot holds the
// values of this moment, which costs no copy, since an update of a value that is held goes into
// fresh memory; SaveShard then writes them, and is done when they are on the disk.
namespace tutti {

// Paths are uint8 vectors of this length, filled up with zeros, so that all have one shape.
inline constexpr int64_t kPathBytes = 4096;
// `path` as such a vector. Throws Error when it is longer.
Tensor PathTensor(std::string_view path);
// The path in such a vector; nothing when it is none.
std::string PathOf(const Tensor& value);

// Holds the current values of the variables under the name `snapshot` on the device. Releases an
// earlier snapshot of that name. Returns the node to run.
const Node* TakeSnapshot(std::span<const Output> variables, std::string_view snapshot);

// Writes the values of that snapshot to a new safetensors file at `path`, with the names of the
// variables as tensor names, and releases the snapshot. The file lies in the directory of a
// checkpoint that is being written. Returns the text that ParseSavedVariables reads, as a uint8
// vector.
Output SaveShard(Output path, std::span<const Output> variables, std::string_view snapshot);

// What was written of one variable.
struct SavedVariable {
  DType dtype = DType::kInvalid;
  Shape shape;
  uint32_t crc = 0;  // CRC32C of its bytes
};
struct SavedVariables {
  int64_t file_bytes = 0;
  uint32_t header_crc = 0;
  std::vector<SavedVariable> variables = {};  // in the order of SaveShard's inputs
};
Tensor FormatSavedVariables(const SavedVariables& saved);
// Throws Error when `text` was not made by SaveShard.
SavedVariables ParseSavedVariables(const Tensor& text);

// Gives each variable the rows of tensor `names[i]` of the checkpoint in the directory `path` that
// begin at `first_rows[i]`, as many as the variable has. All checksums are compared first: an error
// changes nothing. Returns the node to run.
const Node* RestoreShard(Output path, std::span<const Output> variables,
                         std::vector<std::string> names, std::vector<int64_t> first_rows);

}  // namespace tutti
