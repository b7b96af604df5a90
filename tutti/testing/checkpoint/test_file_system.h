#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/checkpoint/file_system.h"

namespace tutti::testing {

// One call that changed something, as it was made.
struct FileCall {
  enum Kind {
    kMakeDirectory,
    kCreate,
    kWrite,
    kAllocate,
    kTruncate,
    kSync,
    kRename,
    kExchange,
    kRemove
  };
  Kind kind;
  std::string path;
  std::string other = {};  // kRename, kExchange
  std::string data = {};   // kWrite
  int64_t offset = 0;      // kWrite; the size for kAllocate and kTruncate
};

// The file system of this machine, with calls that fail when they should, and a list of the calls
// that changed something.
class TestFileSystem final : public checkpoint::FileSystem {
 public:
  // Asked before each call with its name ("write", "sync", ...) and path: an errno lets it fail.
  std::function<int(std::string_view call, const std::string& path)> fail;
  std::vector<FileCall> calls;
  // The names of all calls, those that only read included.
  std::vector<std::string> names;

  int Open(const std::string& path, int flags) override;
  int Close(int fd) override;
  int64_t ReadAt(int fd, void* data, size_t size, int64_t offset) override;
  int64_t WriteAt(int fd, const void* data, size_t size, int64_t offset) override;
  int Allocate(int fd, int64_t size) override;
  int Sync(int fd) override;
  int MakeDirectory(const std::string& path) override;
  int Rename(const std::string& from, const std::string& to) override;
  int RenameNew(const std::string& from, const std::string& to) override;
  int Exchange(const std::string& a, const std::string& b) override;
  int RemoveFile(const std::string& path) override;
  int RemoveDirectory(const std::string& path) override;

 private:
  // -errno when the call should fail.
  int Before(std::string_view call, const std::string& path);
  std::string PathOf(int fd);
  int Record(int result, FileCall call);

  std::mutex mutex_;
  std::map<int, std::string> open_;
};

}  // namespace tutti::testing
