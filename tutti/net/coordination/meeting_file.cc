#include "tutti/net/coordination/meeting_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr std::string_view kTitle = "tutti meeting 1";
constexpr size_t kMaxFileBytes = 2048;

// The rest of the next line of `text` if it begins with `key`; sets `ok` to false otherwise.
std::string_view TakeLine(std::string_view key, std::string_view* text, bool* ok) {
  const size_t end = text->find('\n');
  if (end == std::string_view::npos || !text->starts_with(key)) {
    *ok = false;
    return {};
  }
  const std::string_view value = text->substr(key.size(), end - key.size());
  text->remove_prefix(end + 1);
  return value;
}

}  // namespace

absl::Status WriteMeetingFile(const std::string& path, const MeetingFile& file) {
  std::string text = fmt::format("{}\naddress {}\njob {}\ngeneration {}\n", kTitle, file.address,
                                 file.job, file.generation);
  if (!file.token.empty()) text += fmt::format("token {}\n", file.token);
  const std::string beside = fmt::format("{}.{}", path, getpid());
  const Socket out(open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out.valid() ||
      write(out.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      rename(beside.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(beside.c_str());
    return Unavailable("cannot write {}, where the other ranks look for rank 0: {}", path,
                       ErrnoText(error));
  }
  return absl::OkStatus();
}

absl::StatusOr<MeetingFile> ReadMeetingFile(const std::string& path) {
  // A pipe in its place must not make anybody wait.
  const Socket in(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!in.valid()) {
    return errno == ENOENT ? NotFound("{} does not exist", path)
                           : Unavailable("cannot read {}: {}", path, ErrnoText(errno));
  }
  std::array<char, kMaxFileBytes> bytes;
  const ssize_t got = read(in.fd(), bytes.data(), bytes.size());
  if (got < 0) return Unavailable("cannot read {}: {}", path, ErrnoText(errno));
  std::string_view text(bytes.data(), static_cast<size_t>(got));
  bool ok = true;
  MeetingFile file;
  TakeLine(kTitle, &text, &ok);
  file.address = TakeLine("address ", &text, &ok);
  file.job = TakeLine("job ", &text, &ok);
  const std::string_view generation = TakeLine("generation ", &text, &ok);
  const auto [end, error] =
      std::from_chars(generation.data(), generation.data() + generation.size(), file.generation);
  if (!ok || error != std::errc() || end != generation.data() + generation.size()) {
    return InvalidArgument("{} is no file that rank 0 wrote: it begins with '{}'", path,
                           Printable({bytes.data(), static_cast<size_t>(got)}, 32));
  }
  if (text.empty()) return file;
  file.token = TakeLine("token ", &text, &ok);
  struct stat about = {};
  if (!ok || fstat(in.fd(), &about) != 0 || about.st_uid != geteuid() ||
      (about.st_mode & 077) != 0) {
    return MakeStatus(
        absl::StatusCode::kPermissionDenied,
        "{} has a token that others could have read or written: it must belong to user {} and have "
        "mode 0600; it has user {} and mode {:04o}",
        path, geteuid(), about.st_uid, about.st_mode & 07777);
  }
  return file;
}

void RemoveMeetingFile(const std::string& path, const MeetingFile& file) {
  const absl::StatusOr<MeetingFile> there = ReadMeetingFile(path);
  if (there.ok() && *there == file) unlink(path.c_str());
}

}  // namespace tutti::net
