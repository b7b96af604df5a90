#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"

// manifest.json: what a checkpoint holds and where. docs/formats/checkpoint.md has the grammar.
namespace tutti::checkpoint {

inline constexpr int64_t kFormat = 1;  // the newest that this version reads and writes
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr int64_t kMaxManifestBytes = 64 << 20;

// One safetensors file.
struct SavedShard {
  std::string file;  // a name in the checkpoint's directory
  int64_t bytes = 0;
  uint32_t header_crc = 0;
};

// A variable, or consecutive rows of one that is split.
struct SavedTensor {
  std::string name;  // of the whole variable, whatever parts it has
  std::string key;   // in the shard's file
  DType dtype = DType::kInvalid;
  Shape shape;            // of these rows
  Shape whole;            // of the variable
  int64_t first_row = 0;  // where these rows begin in it
  std::string slot_of;    // the variable whose slot of an optimizer this is; empty: it is none
  int64_t shard = 0;      // in Manifest::shards
  uint32_t crc = 0;       // of its bytes

  int64_t rows() const { return shape.rank() == 0 ? 1 : shape[0]; }
};

// Names and values, to be shown and to be compared with those of another run.
using Facts = std::map<std::string, std::string>;

struct Manifest {
  int64_t format = kFormat;
  std::string made_by = {};  // the program and its version
  int64_t step = 0;
  int64_t position = 0;          // samples that training has taken, over all workers
  int64_t seed = 0;              // of initial values, dropout and whatever draws by step
  std::string fingerprint = {};  // of the graph
  Facts data = {};               // the dataset: samples, epochs, seed of its order
  // What the order of sums depends on: strategy, workers, devices, placement, algorithm, buckets,
  // wire. A run with the same facts goes on with the same bits.
  Facts order = {};
  std::vector<SavedShard> shards = {};
  std::vector<SavedTensor> tensors = {};
};

// The file's text: one field, shard or tensor a line, and at the end a checksum for each line.
std::string FormatManifest(const Manifest& manifest);

// Checks every line's checksum, then every field. DATA_LOSS names the line that is damaged, and
// what stands in it; UNIMPLEMENTED a format that is newer than kFormat; INVALID_ARGUMENT a field
// with a value that no writer gives: a shard outside of the directory, rows twice, ...
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

}  // namespace tutti::checkpoint
