#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/file.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/tensor/tensor.h"

namespace tutti::checkpoint {

// A checkpoint that is being read. As long as it lives, nobody removes it. Thread-safe.
class SavedCheckpoint {
 public:
  // Opens a checkpoint's directory and reads its manifest. NOT_FOUND when there is none, or it is
  // just being removed.
  static absl::StatusOr<SavedCheckpoint> Open(FileSystem& files, const std::string& path);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }

  // The first part of a tensor; null when there is none of that name.
  const SavedTensor* Find(std::string_view name) const;
  int64_t bytes() const;  // of all tensors

  // Rows of a tensor, or all of it.
  struct Request {
    std::string name;
    int64_t first_row = 0;
    Tensor target;  // has the shape of what is wanted; is written to
  };
  // Reads, and compares every checksum of what it reads. NOT_FOUND or INVALID_ARGUMENT for a
  // request that does not fit, before anything is read; DATA_LOSS with the tensor's name for
  // damage.
  absl::Status Read(std::span<Request> requests, const TransferOptions& options = {}) const;

  // Compares the sizes, headers and checksums of everything. DATA_LOSS with the first thing that is
  // damaged.
  absl::Status Verify(const TransferOptions& options = {}) const;

 private:
  SavedCheckpoint(FileSystem& files, std::string path, File directory)
      : files_(&files), path_(std::move(path)), directory_(std::move(directory)) {}

  void Index();
  // Opens a shard whose size and header are those of the manifest.
  absl::StatusOr<ShardFile> OpenShard(size_t shard) const;
  absl::Status CheckRequest(const Request& request) const;

  FileSystem* files_;
  std::string path_;
  File directory_;  // with a shared lock
  Manifest manifest_;
  std::unordered_map<std::string_view, const SavedTensor*> by_name_;  // the first part of each
  std::vector<std::vector<const SavedTensor*>> by_shard_;  // in the order of the manifest
};

// Opens `path` if it is a checkpoint, and the newest one in it if it is a model directory.
absl::StatusOr<SavedCheckpoint> OpenCheckpoint(FileSystem& files, const std::string& path);

}  // namespace tutti::checkpoint
