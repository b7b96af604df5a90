#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/file.h"
#include "tutti/checkpoint/safetensors.h"
#include "tutti/tensor/tensor.h"

// One safetensors file of a checkpoint, written and read by a few threads at once.
namespace tutti::checkpoint {

struct NamedTensor {
  std::string name;
  Tensor value;
};

// A tensor of a file, with its checksum.
struct StoredTensor {
  TensorEntry entry;
  uint32_t crc = 0;  // CRC32C of its bytes
};

// What was written.
struct StoredShard {
  int64_t bytes = 0;        // of the file
  uint32_t header_crc = 0;  // CRC32C of length and header
  std::vector<StoredTensor> tensors = {};
};

// What the header of a checkpoint's shard says beside its tensors: the step, so that shards of
// different steps are told apart.
inline constexpr const char* kStepKey = "tutti.step";
std::map<std::string, std::string> ShardMetadata(int64_t step);

struct TransferOptions {
  int threads = 2;
  // Asked between pieces of some megabytes; an error ends the transfer with it.
  std::function<absl::Status()> check = {};
};

// Writes the tensors into a new file and syncs it. The directory must be synced by the caller. A
// file that could not be written whole is left behind: it lies in a directory that is thrown away.
// Each tensor is given up as soon as its bytes are in the page cache, the last ones first: a
// backward pass, and with it the updates of the step beside which a checkpoint is written, begins
// with the last layers.
absl::StatusOr<StoredShard> WriteShard(FileSystem& files, const std::string& path,
                                       std::vector<NamedTensor> tensors,
                                       const std::map<std::string, std::string>& metadata = {},
                                       const TransferOptions& options = {});

// The same for a file that stands alone: it is written beside `path` and gets that name when it is
// whole, durably. Nothing is left of one that could not be written. ALREADY_EXISTS if there is a
// file of that name, which stays as it is.
absl::StatusOr<StoredShard> WriteShardDurably(FileSystem& files, const std::string& path,
                                              std::vector<NamedTensor> tensors,
                                              const std::map<std::string, std::string>& metadata);

// A file that is open to be read.
class ShardFile {
 public:
  // Reads and checks the header; no tensor is read.
  static absl::StatusOr<ShardFile> Open(FileSystem& files, const std::string& path);

  const Header& header() const { return header_; }
  int64_t bytes() const { return bytes_; }
  const std::string& header_text() const { return header_text_; }  // with the length before it

  struct Request {
    const TensorEntry* entry = nullptr;  // of this file
    std::span<std::byte> target = {};    // of its size
    uint32_t crc = 0;                    // of what was read
  };
  // Reads the bytes of all requests and sets their checksums.
  absl::Status Read(std::span<Request> requests, const TransferOptions& options = {}) const;
  // The checksum of each tensor, in the order of header(), with little memory.
  absl::StatusOr<std::vector<uint32_t>> Checksums(const TransferOptions& options = {}) const;

 private:
  explicit ShardFile(File file) : file_(std::move(file)) {}
  int64_t data_begin() const { return int64_t(header_text_.size()); }

  File file_;
  int64_t bytes_ = 0;
  std::string header_text_;
  Header header_;
};

}  // namespace tutti::checkpoint
