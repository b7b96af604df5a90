#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/checkpoint/file_system.h"

namespace tutti::checkpoint {

// "cannot write /models/a: No space left on device" for -errno `result`.
absl::Status SystemError(std::string_view what, std::string_view path, int64_t result);

// An open file or directory: the calls of a FileSystem with whole transfers and errors that name
// the path. Closed when it goes. ReadAt and WriteAt may be called by several threads at once.
class File {
 public:
  // A new file, to be written. ALREADY_EXISTS when there is one.
  static absl::StatusOr<File> Create(FileSystem& files, const std::string& path);
  static absl::StatusOr<File> OpenToRead(FileSystem& files, const std::string& path);
  static absl::StatusOr<File> OpenDirectory(FileSystem& files, const std::string& path);
  // Made when there is none.
  static absl::StatusOr<File> OpenToLock(FileSystem& files, const std::string& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  absl::StatusOr<int64_t> Size() const;
  // Fills `data`. DATA_LOSS when the file ends before.
  absl::Status ReadAt(std::span<std::byte> data, int64_t offset) const;
  absl::Status WriteAt(std::span<const std::byte> data, int64_t offset) const;
  absl::Status Allocate(int64_t size) const;
  void StartWriteback(int64_t offset, int64_t size) const;
  absl::Status Sync() const;
  // False when somebody else holds a lock that excludes it.
  absl::StatusOr<bool> TryLock(bool exclusive) const;
  // An error of close(2), which some file systems report failed writes by.
  absl::Status Close();

 private:
  File(FileSystem& files, std::string path, int fd)
      : files_(&files), path_(std::move(path)), fd_(fd) {}

  FileSystem* files_;
  std::string path_;
  int fd_ = -1;
};

// The whole of a file of at most `most` bytes.
absl::StatusOr<std::string> ReadWhole(FileSystem& files, const std::string& path, int64_t most);
// Writes a new file and syncs it.
absl::Status WriteAndSync(FileSystem& files, const std::string& path, std::string_view text);
// Makes the names in a directory durable.
absl::Status SyncDirectory(FileSystem& files, const std::string& path);
// Makes the directory and those above it that are missing, durably.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);
// Removes a directory with the files in it. Nothing happens when there is none.
absl::Status RemoveTree(FileSystem& files, const std::string& path);

}  // namespace tutti::checkpoint
