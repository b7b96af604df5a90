#include "tutti/launch/job_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr size_t kLastLines = 20;
constexpr size_t kLongestLine = 64 << 10;  // what comes without an end is cut here
constexpr const char* kColors[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m"};

bool WantsColor(bool terminal) {
  const char* no_color = std::getenv("NO_COLOR");
  return terminal && (no_color == nullptr || *no_color == '\0');
}

// False, with errno, where it cannot be written, a full disk for one: that ends no job.
bool Put(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

JobOutput::JobOutput(std::vector<std::string> roles, std::FILE* out, std::FILE* err)
    : out_(out), err_(err), terminal_(::isatty(::fileno(err)) == 1), color_(WantsColor(terminal_)) {
  for (std::string& role : roles) {
    width_ = std::max(width_, role.size());
    tasks_.push_back({.role = std::move(role)});
  }
}

JobOutput::~JobOutput() {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    Flush(i);
    if (tasks_[i].log != nullptr) std::fclose(tasks_[i].log);
  }
  if (drawn_) std::fputc('\n', err_);
  std::fflush(err_);
}

absl::Status JobOutput::OpenLogs(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return InvalidArgument("cannot make the folder {}: {}", folder, error.message());
  for (Task& task : tasks_) {
    std::string name = task.role;
    std::replace(name.begin(), name.end(), ' ', '-');
    task.log_path = folder + "/" + name + ".log";
    task.log = std::fopen(task.log_path.c_str(), "we");
    if (task.log == nullptr) {
      return InvalidArgument("cannot write {}: {}", task.log_path, std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

void JobOutput::Take(size_t index, Stream stream, std::string_view bytes) {
  Task& task = tasks_[index];
  std::string& pending = task.pending[size_t(stream)];
  pending += bytes;
  size_t begin = 0;
  for (size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', begin)) {
    Line(task, stream, std::string_view(pending).substr(begin, end - begin));
    begin = end + 1;
  }
  pending.erase(0, begin);
  if (pending.size() > kLongestLine) {
    Line(task, stream, pending);
    pending.clear();
  }
}

void JobOutput::Flush(size_t index) {
  Task& task = tasks_[index];
  for (const Stream stream : {Stream::kOut, Stream::kErr}) {
    std::string& pending = task.pending[size_t(stream)];
    if (!pending.empty()) Line(task, stream, pending);
    pending.clear();
  }
}

void JobOutput::Line(Task& task, Stream stream, std::string_view line) {
  task.last.emplace_back(line);
  if (task.last.size() > kLastLines) task.last.pop_front();
  Keep(task, line);
  Erase();
  const size_t number = size_t(&task - tasks_.data());
  const std::string_view color = color_ ? kColors[number % std::size(kColors)] : "";
  Put(stream == Stream::kOut ? out_ : err_,
      fmt::format("{}{:<{}} |{} {}\n", color, task.role, width_, color_ ? "\033[0m" : "", line));
  Redraw();
}

void JobOutput::Keep(Task& task, std::string_view line) {
  if (task.log == nullptr || Put(task.log, fmt::format("{}\n", line))) return;
  const int error = errno;
  std::fclose(std::exchange(task.log, nullptr));
  Say(fmt::format("tutti run: cannot write {}: {}; it ends there, and the job goes on",
                  task.log_path, std::strerror(error)));
}

void JobOutput::SetProgress(std::string_view line) {
  if (!terminal_) return;
  Erase();
  progress_ = line;
  Redraw();
}

void JobOutput::Say(std::string_view line) {
  Erase();
  Put(err_, fmt::format("{}\n", line));
  Redraw();
}

void JobOutput::Erase() {
  if (!drawn_) return;
  Put(err_, "\r\033[K");
  drawn_ = false;
}

void JobOutput::Redraw() {
  if (!terminal_ || progress_.empty()) return;
  Put(err_, progress_);
  drawn_ = true;
}

}  // namespace tutti
