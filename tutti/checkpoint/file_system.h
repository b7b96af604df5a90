#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::checkpoint {

// The system calls that checkpoints are made of, one function each. Everything in this folder
// reaches the disk through it, so that tests can let any call fail, and can record the calls of a
// save to replay them (tutti/testing/checkpoint).
//
// Functions return a value of at least 0, or -errno. Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // That of this machine.
  static FileSystem& System();

  // open(2) with O_CLOEXEC; `flags` are O_RDONLY, O_RDWR | O_CREAT | O_EXCL, O_DIRECTORY, ...
  virtual int Open(const std::string& path, int flags);
  virtual int Close(int fd);
  virtual int64_t Size(int fd);
  virtual int64_t ReadAt(int fd, void* data, size_t size, int64_t offset);
  virtual int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset);
  // Makes the file `size` bytes long, with room on the disk for all of them where that can be had.
  virtual int Allocate(int fd, int64_t size);
  // A hint to begin to write this range to the disk. Nothing is promised by it.
  virtual void StartWriteback(int fd, int64_t offset, int64_t size);
  // fsync(2), of a file or a directory.
  virtual int Sync(int fd);
  // flock(2), never waiting: -EWOULDBLOCK when somebody else holds it. Given up with the
  // descriptor.
  virtual int Lock(int fd, bool exclusive);

  virtual int MakeDirectory(const std::string& path);
  virtual int Rename(const std::string& from, const std::string& to);
  // -EEXIST if `to` is there already.
  virtual int RenameNew(const std::string& from, const std::string& to);
  // Exchanges two names in one step. -EINVAL or -ENOSYS where the file system cannot.
  virtual int Exchange(const std::string& a, const std::string& b);
  virtual int RemoveFile(const std::string& path);
  virtual int RemoveDirectory(const std::string& path);

  // The names in a directory, without "." and "..", in order.
  virtual int List(const std::string& path, std::vector<std::string>* names);
  // Which file this is: 0, and (device, inode).
  struct Identity {
    uint64_t device = 0;
    uint64_t inode = 0;
    bool directory = false;
    bool operator==(const Identity&) const = default;
  };
  virtual int Identify(const std::string& path, Identity* identity);
  // Bytes that may still be written to the file system of `path`.
  virtual int64_t FreeBytes(const std::string& path);
};

}  // namespace tutti::checkpoint
