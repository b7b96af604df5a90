#include "tutti/train/summaries/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <span>

#include "tutti/base/crc32c.h"

namespace tutti {
namespace {

void AppendFixed(uint64_t value, int bytes, std::string& to) {
  for (int i = 0; i < bytes; ++i) to += char(value >> 8 * i);
}

// A CRC of data that contains CRCs is weak, so records hold them rotated, with a constant added.
uint32_t MaskedCrc(std::string_view data) {
  const uint32_t crc = Crc32c(std::as_bytes(std::span(data)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string HostName() {
  char name[256] = "localhost";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

std::string FrameRecord(std::string_view data) {
  std::string record;
  AppendFixed(data.size(), 8, record);
  AppendFixed(MaskedCrc(record), 4, record);
  record += data;
  AppendFixed(MaskedCrc(data), 4, record);
  return record;
}

EventFile::~EventFile() {
  if (file_ >= 0) ::close(file_);
}

absl::Status EventFile::Open(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return Unavailable("cannot make the directory {}: {}", directory, error.message());
  }
  static std::atomic<int> opened{0};  // one process may open several within a second
  path_ = fmt::format("{}/events.out.tfevents.{}.{}.{}.{}", directory, std::time(nullptr),
                      HostName(), ::getpid(), opened++);
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) return Unavailable("cannot open {}: {}", path_, std::strerror(errno));
  return absl::OkStatus();
}

absl::Status EventFile::Write(std::string_view event) {
  const std::string record = FrameRecord(event);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Unavailable("cannot write to {}: {}", path_, std::strerror(errno));
    rest.remove_prefix(size_t(written));
  }
  return absl::OkStatus();
}

}  // namespace tutti
