#include "tutti/launch/job_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "tutti/base/console.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr size_t kLastLines = 20;
constexpr size_t kLongestLine = 64 << 10;  // what comes without an end is cut here
constexpr const char* kColors[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m"};

bool IsTerminal(std::FILE* file) {
  const char* kind = std::getenv("TERM");
  return ::isatty(::fileno(file)) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

bool WantsColor(bool terminal) {
  const char* no_color = std::getenv("NO_COLOR");
  return terminal && (no_color == nullptr || *no_color == '\0');
}

}  // namespace

JobOutput::JobOutput(std::vector<std::string> roles, std::FILE* out, std::FILE* err)
    : out_(out), err_(err), terminal_(IsTerminal(err)), color_(WantsColor(terminal_)) {
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
  if (drawn_ > 0) WriteTo(err_, "\n");
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
  WriteTo(stream == Stream::kOut ? out_ : err_, fmt::format("{}{:<{}} |{} {}\n", color, task.role,
                                                            width_, color_ ? "\033[0m" : "", line));
  Redraw();
}

void JobOutput::Keep(Task& task, std::string_view line) {
  if (task.log == nullptr || WriteTo(task.log, fmt::format("{}\n", line))) return;
  const int error = errno;
  std::fclose(std::exchange(task.log, nullptr));
  Say(fmt::format("tutti run: cannot write {}: {}; the log ends there, the job continues",
                  task.log_path, std::strerror(error)));
}

void JobOutput::SetProgress(std::string_view line) {
  if (!terminal_) return;
  Erase();
  progress_ = UnpackProgress(line).value_or(ProgressText{.front = std::string(line)});
  Redraw();
}

void JobOutput::Say(std::string_view line) {
  Erase();
  WriteTo(err_, fmt::format("{}\n", line));
  Redraw();
}

void JobOutput::Erase() {
  if (drawn_ == 0) return;
  // Blanks do on every terminal what an escape sequence does on most. One that has become narrower
  // would wrap them.
  FormatTo(err_, "\r{:{}}\r", "", std::min(drawn_, size_t(TerminalColumns(err_) - 1)));
  drawn_ = 0;
}

void JobOutput::Redraw() {
  if (!terminal_ || progress_.front.empty()) return;
  const std::string shown = Fit(progress_, {.width = TerminalColumns(err_)});
  WriteTo(err_, shown);
  drawn_ = shown.size();
}

}  // namespace tutti
