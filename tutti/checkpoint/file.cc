#include "tutti/checkpoint/file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::checkpoint {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

std::string ParentOf(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = end == std::string::npos ? end : path.rfind('/', end);
  if (slash == std::string::npos) return end == std::string::npos ? "/" : ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

}  // namespace

absl::Status SystemError(std::string_view what, std::string_view path, int64_t result) {
  const int error = int(-result);
  return MakeStatus(CodeOf(error), "cannot {} {}: {}", what, path, std::strerror(error));
}

File::File(File&& other) noexcept
    : files_(other.files_), path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) files_->Close(fd_);
}

absl::StatusOr<File> File::Create(FileSystem& files, const std::string& path) {
  const int fd = files.Open(path, O_WRONLY | O_CREAT | O_EXCL);
  if (fd < 0) return SystemError("create", path, fd);
  return File(files, path, fd);
}

absl::StatusOr<File> File::OpenToRead(FileSystem& files, const std::string& path) {
  const int fd = files.Open(path, O_RDONLY);
  if (fd < 0) return SystemError("open", path, fd);
  return File(files, path, fd);
}

absl::StatusOr<File> File::OpenDirectory(FileSystem& files, const std::string& path) {
  const int fd = files.Open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return SystemError("open the directory", path, fd);
  return File(files, path, fd);
}

absl::StatusOr<File> File::OpenToLock(FileSystem& files, const std::string& path) {
  const int fd = files.Open(path, O_RDWR | O_CREAT);
  if (fd < 0) return SystemError("open", path, fd);
  return File(files, path, fd);
}

absl::StatusOr<int64_t> File::Size() const {
  const int64_t size = files_->Size(fd_);
  if (size < 0) return SystemError("tell the size of", path_, size);
  return size;
}

absl::Status File::ReadAt(std::span<std::byte> data, int64_t offset) const {
  while (!data.empty()) {
    const int64_t done = files_->ReadAt(fd_, data.data(), data.size(), offset);
    if (done == -EINTR) continue;
    if (done < 0) return SystemError("read", path_, done);
    if (done == 0) {
      return DataLoss("{} ends at byte {}; {} more were expected: it was cut off", path_, offset,
                      data.size());
    }
    data = data.subspan(size_t(done));
    offset += done;
  }
  return absl::OkStatus();
}

absl::Status File::WriteAt(std::span<const std::byte> data, int64_t offset) const {
  while (!data.empty()) {
    const int64_t done = files_->WriteAt(fd_, data.data(), data.size(), offset);
    if (done == -EINTR) continue;
    if (done <= 0) return SystemError("write", path_, done == 0 ? -EIO : done);
    data = data.subspan(size_t(done));
    offset += done;
  }
  return absl::OkStatus();
}

absl::Status File::Allocate(int64_t size) const {
  if (size == 0) return absl::OkStatus();
  const int result = files_->Allocate(fd_, size);
  if (result < 0) return SystemError("make room for", path_, result);
  return absl::OkStatus();
}

void File::StartWriteback(int64_t offset, int64_t size) const {
  files_->StartWriteback(fd_, offset, size);
}

absl::Status File::Sync() const {
  const int result = files_->Sync(fd_);
  if (result < 0) return SystemError("sync", path_, result);
  return absl::OkStatus();
}

absl::StatusOr<bool> File::TryLock(bool exclusive) const {
  const int result = files_->Lock(fd_, exclusive);
  if (result >= 0) return true;
  if (result == -EWOULDBLOCK) return false;
  return SystemError("lock", path_, result);
}

absl::Status File::Close() {
  const int result = files_->Close(std::exchange(fd_, -1));
  if (result < 0) return SystemError("close", path_, result);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadWhole(FileSystem& files, const std::string& path, int64_t most) {
  TUTTI_ASSIGN_OR_RETURN(const File file, File::OpenToRead(files, path));
  TUTTI_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  if (size > most) {
    return InvalidArgument("{} has {} bytes; expected at most {}", path, size, most);
  }
  std::string text(size_t(size), '\0');
  TUTTI_RETURN_IF_ERROR(file.ReadAt(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

absl::Status WriteAndSync(FileSystem& files, const std::string& path, std::string_view text) {
  TUTTI_ASSIGN_OR_RETURN(File file, File::Create(files, path));
  TUTTI_RETURN_IF_ERROR(file.WriteAt(std::as_bytes(std::span(text)), 0));
  TUTTI_RETURN_IF_ERROR(file.Sync());
  return file.Close();
}

absl::Status SyncDirectory(FileSystem& files, const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const File directory, File::OpenDirectory(files, path));
  return directory.Sync();
}

absl::Status MakeDirectories(FileSystem& files, const std::string& path) {
  FileSystem::Identity identity;
  if (files.Identify(path, &identity) == 0) return absl::OkStatus();
  const std::string parent = ParentOf(path);
  if (parent != path) TUTTI_RETURN_IF_ERROR(MakeDirectories(files, parent));
  const int result = files.MakeDirectory(path);
  if (result == -EEXIST) return absl::OkStatus();
  if (result < 0) return SystemError("make the directory", path, result);
  return SyncDirectory(files, parent);
}

absl::Status RemoveTree(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  int result = files.List(path, &names);
  if (result == -ENOENT) return absl::OkStatus();
  if (result < 0) return SystemError("list", path, result);
  for (const std::string& name : names) {
    const std::string inside = path + "/" + name;
    result = files.RemoveFile(inside);
    if (result == -EISDIR) {
      TUTTI_RETURN_IF_ERROR(RemoveTree(files, inside));
    } else if (result < 0 && result != -ENOENT) {
      return SystemError("remove", inside, result);
    }
  }
  result = files.RemoveDirectory(path);
  if (result < 0 && result != -ENOENT) return SystemError("remove the directory", path, result);
  return absl::OkStatus();
}

}  // namespace tutti::checkpoint
