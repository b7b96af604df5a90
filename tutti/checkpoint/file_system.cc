#include "tutti/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>

namespace tutti::checkpoint {
namespace {

constexpr int kFileMode = 0666;       // less the umask
constexpr int kDirectoryMode = 0777;  // less the umask

template <typename T>
T OrErrno(T result) {
  return result < 0 ? T(-errno) : result;
}

}  // namespace

FileSystem& FileSystem::System() {
  static FileSystem system;
  return system;
}

int FileSystem::Open(const std::string& path, int flags) {
  return OrErrno(::open(path.c_str(), flags | O_CLOEXEC, kFileMode));
}

int FileSystem::Close(int fd) { return OrErrno(::close(fd)); }

int64_t FileSystem::Size(int fd) {
  struct stat status;
  if (::fstat(fd, &status) < 0) return -errno;
  if (!S_ISREG(status.st_mode)) return -EINVAL;
  return status.st_size;
}

int64_t FileSystem::ReadAt(int fd, void* data, size_t size, int64_t offset) {
  return OrErrno(int64_t(::pread(fd, data, size, offset)));
}

int64_t FileSystem::WriteAt(int fd, const void* data, size_t size, int64_t offset) {
  return OrErrno(int64_t(::pwrite(fd, data, size, offset)));
}

int FileSystem::Allocate(int fd, int64_t size) {
  if (::fallocate(fd, 0, 0, size) == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return -errno;
  return OrErrno(::ftruncate(fd, size));
}

void FileSystem::StartWriteback(int fd, int64_t offset, int64_t size) {
  (void)::sync_file_range(fd, offset, size, SYNC_FILE_RANGE_WRITE);
}

int FileSystem::Sync(int fd) { return OrErrno(::fsync(fd)); }

int FileSystem::Lock(int fd, bool exclusive) {
  return OrErrno(::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB));
}

int FileSystem::MakeDirectory(const std::string& path) {
  return OrErrno(::mkdir(path.c_str(), kDirectoryMode));
}

int FileSystem::Rename(const std::string& from, const std::string& to) {
  return OrErrno(::rename(from.c_str(), to.c_str()));
}

int FileSystem::RenameNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -errno;
  // A file system without that call: a second name can be given to a new name only, too.
  if (::link(from.c_str(), to.c_str()) < 0) return -errno;
  return OrErrno(::unlink(from.c_str()));
}

int FileSystem::Exchange(const std::string& a, const std::string& b) {
  return OrErrno(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
}

int FileSystem::RemoveFile(const std::string& path) { return OrErrno(::unlink(path.c_str())); }

int FileSystem::RemoveDirectory(const std::string& path) { return OrErrno(::rmdir(path.c_str())); }

int FileSystem::List(const std::string& path, std::vector<std::string>* names) {
  names->clear();
  DIR* const directory = ::opendir(path.c_str());
  if (directory == nullptr) return -errno;
  errno = 0;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names->push_back(name);
    errno = 0;
  }
  const int error = errno;
  ::closedir(directory);
  std::sort(names->begin(), names->end());
  return -error;
}

int FileSystem::Identify(const std::string& path, Identity* identity) {
  struct stat status;
  if (::lstat(path.c_str(), &status) < 0) return -errno;
  *identity = {status.st_dev, status.st_ino, S_ISDIR(status.st_mode)};
  return 0;
}

int64_t FileSystem::FreeBytes(const std::string& path) {
  struct statvfs status;
  if (::statvfs(path.c_str(), &status) < 0) return -errno;
  const double bytes = double(status.f_bavail) * double(status.f_frsize);
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  return bytes < double(kMost) ? int64_t(bytes) : kMost;
}

}  // namespace tutti::checkpoint
