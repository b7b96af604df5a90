#include "tutti/base/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tutti/base/status.h"

namespace tutti {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return Unavailable("cannot write {}: {}", path, std::strerror(error));
}

}  // namespace

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return CannotWrite(path, errno);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (written && closed) return absl::OkStatus();
  const int error = written ? errno : write_error;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) std::filesystem::remove(path, ignored);
  return CannotWrite(path, error);
}

absl::Status CheckWritable(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "abe");
  if (file == nullptr) return CannotWrite(path, errno);
  std::fclose(file);
  return absl::OkStatus();
}

}  // namespace tutti
