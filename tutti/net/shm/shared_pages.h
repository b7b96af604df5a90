#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::net::shm {

// A file descriptor that is closed when this is destroyed.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release();

 private:
  int fd_ = -1;
};

// Memory of a memfd as this process sees it, unmapped when this is destroyed. It has no name: it
// vanishes with the last process that maps it. Nobody can make the file shorter, so whoever maps it
// can touch all of it. From 2 MiB on it lies in large pages where the system has them.
class SharedPages {
 public:
  SharedPages() = default;
  SharedPages(SharedPages&& other) noexcept;
  SharedPages& operator=(SharedPages&& other) noexcept;
  ~SharedPages();

  // Zeroed memory, present in full. `fd` gets the file to pass on.
  static absl::StatusOr<SharedPages> Create(size_t bytes, FileDescriptor* fd);
  // Memory that a peer created. DATA_LOSS if the file is not what it should be: sealed against
  // shrinking, and at least `bytes` long.
  static absl::StatusOr<SharedPages> Open(const FileDescriptor& fd, size_t bytes);

  Bytes bytes() const { return bytes_; }
  // Enters all pages into the page table, so that the first touch is as quick as the second.
  void Populate() const;
  // Gives the memory back but keeps its addresses, with zeroes behind them: a pointer that somebody
  // still uses does no harm.
  void Hollow() const;

 private:
  static absl::StatusOr<SharedPages> Map(const FileDescriptor& fd, size_t bytes);

  Bytes bytes_;        // as asked for
  size_t mapped_ = 0;  // whole pages
};

}  // namespace tutti::net::shm
