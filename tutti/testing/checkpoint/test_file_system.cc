#include "tutti/testing/checkpoint/test_file_system.h"

#include <fcntl.h>

namespace tutti::testing {

using checkpoint::FileSystem;

int TestFileSystem::Before(std::string_view call, const std::string& path) {
  std::lock_guard lock(mutex_);
  names.emplace_back(call);
  return fail ? -fail(call, path) : 0;
}

std::string TestFileSystem::PathOf(int fd) {
  std::lock_guard lock(mutex_);
  return open_.at(fd);
}

int TestFileSystem::Record(int result, FileCall call) {
  std::lock_guard lock(mutex_);
  if (result >= 0) calls.push_back(std::move(call));
  return result;
}

int TestFileSystem::Open(const std::string& path, int flags) {
  if (const int error = Before("open", path); error < 0) return error;
  Identity identity;
  const bool creates = (flags & O_CREAT) != 0 && Identify(path, &identity) < 0;
  const int fd = FileSystem::Open(path, flags);
  if (fd < 0) return fd;
  {
    std::lock_guard lock(mutex_);
    open_[fd] = path;
  }
  if (creates) Record(0, {FileCall::kCreate, path});
  return fd;
}

int TestFileSystem::Close(int fd) {
  const std::string path = PathOf(fd);
  {
    std::lock_guard lock(mutex_);
    open_.erase(fd);
  }
  const int result = FileSystem::Close(fd);
  const int error = Before("close", path);
  return error < 0 ? error : result;
}

int64_t TestFileSystem::ReadAt(int fd, void* data, size_t size, int64_t offset) {
  if (const int error = Before("read", PathOf(fd)); error < 0) return error;
  return FileSystem::ReadAt(fd, data, size, offset);
}

int64_t TestFileSystem::WriteAt(int fd, const void* data, size_t size, int64_t offset) {
  const std::string path = PathOf(fd);
  if (const int error = Before("write", path); error < 0) return error;
  const int64_t done = FileSystem::WriteAt(fd, data, size, offset);
  if (done > 0) {
    Record(0, {FileCall::kWrite, path, "",
               std::string(static_cast<const char*>(data), size_t(done)), offset});
  }
  return done;
}

int TestFileSystem::Allocate(int fd, int64_t size) {
  const std::string path = PathOf(fd);
  if (const int error = Before("allocate", path); error < 0) return error;
  return Record(FileSystem::Allocate(fd, size), {FileCall::kAllocate, path, "", "", size});
}

int TestFileSystem::Sync(int fd) {
  const std::string path = PathOf(fd);
  if (const int error = Before("sync", path); error < 0) return error;
  return Record(FileSystem::Sync(fd), {FileCall::kSync, path});
}

int TestFileSystem::MakeDirectory(const std::string& path) {
  if (const int error = Before("mkdir", path); error < 0) return error;
  return Record(FileSystem::MakeDirectory(path), {FileCall::kMakeDirectory, path});
}

int TestFileSystem::Rename(const std::string& from, const std::string& to) {
  if (const int error = Before("rename", from); error < 0) return error;
  return Record(FileSystem::Rename(from, to), {FileCall::kRename, from, to});
}

int TestFileSystem::RenameNew(const std::string& from, const std::string& to) {
  if (const int error = Before("rename", from); error < 0) return error;
  return Record(FileSystem::RenameNew(from, to), {FileCall::kRename, from, to});
}

int TestFileSystem::Exchange(const std::string& a, const std::string& b) {
  if (const int error = Before("exchange", a); error < 0) return error;
  return Record(FileSystem::Exchange(a, b), {FileCall::kExchange, a, b});
}

int TestFileSystem::RemoveFile(const std::string& path) {
  if (const int error = Before("unlink", path); error < 0) return error;
  return Record(FileSystem::RemoveFile(path), {FileCall::kRemove, path});
}

int TestFileSystem::RemoveDirectory(const std::string& path) {
  if (const int error = Before("rmdir", path); error < 0) return error;
  return Record(FileSystem::RemoveDirectory(path), {FileCall::kRemove, path});
}

}  // namespace tutti::testing
