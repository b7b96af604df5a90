#include "tutti/train/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"

namespace tutti {
namespace {

constexpr int kMostBarColumns = 40;
constexpr int kLeastBarColumns = 10;
constexpr int kLauncherColumns = 80;  // unless it says how many it has

int64_t Nanos(std::chrono::milliseconds interval) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(interval).count();
}

std::string Duration(double seconds) {
  const auto whole = int64_t(std::ceil(std::clamp(seconds, 0.0, 1e9)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string Rate(double per_second) {
  if (per_second >= 100) return fmt::format("{:.0f}/s", per_second);
  if (per_second >= 1) return fmt::format("{:.1f}/s", per_second);
  return fmt::format("{:.2f}/s", per_second);
}

std::string Bar(const ProgressLine& line, int columns, const ProgressStyle& style) {
  const double share =
      std::clamp(double(line.done) / double(std::max<int64_t>(line.total, 1)), 0.0, 1.0);
  const int full = int(share * columns);
  std::string done;
  std::string rest;
  for (int i = 0; i < full; ++i) done += style.unicode ? "━" : "=";
  for (int i = full; i < columns; ++i) {
    rest += style.unicode ? (style.color ? "━" : " ") : i == full && full > 0 ? ">" : " ";
  }
  if (style.color) return fmt::format("\033[32m{}\033[90m{}\033[0m", done, rest);
  return fmt::format("[{}{}]", done, rest);
}

bool EnvironmentIs(const char* name, std::string_view value) {
  const char* found = std::getenv(name);
  return found != nullptr && found == value;
}

bool Utf8Locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view text = value;
    return text.find("UTF-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

int Columns(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

int NumberInEnvironment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int number = otherwise;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), number);
  return number;
}

}  // namespace

std::string Render(const ProgressLine& line, const ProgressStyle& style) {
  const std::string total = line.total > 0 ? fmt::format("{}", line.total) : "";
  std::string front = line.total > 0
                          ? fmt::format("{} {:>{}}/{}", line.label, line.done, total.size(), total)
                          : fmt::format("{} {}", line.label, line.done);
  std::string back = fmt::format("  {}", Rate(line.per_second));
  for (const auto& [name, value] : line.values) back += fmt::format("  {} {:.4f}", name, value);
  if (line.total > 0) back += fmt::format("  {} left", Duration(line.seconds_left));
  if (style.width <= 0) return front + back;
  // The last column stays free: some terminals wrap when it is written.
  const int room = style.width - 1 - int(front.size() + back.size()) - 3;
  if (line.total > 0 && room >= kLeastBarColumns) {
    return front + " " + Bar(line, std::min(room, kMostBarColumns), style) + back;
  }
  return (front + back).substr(0, size_t(std::max(style.width - 1, 0)));
}

Progress::Progress(const ProgressOptions& options) : options_(options) {
  if (!options_.now_nanos) options_.now_nanos = NowNanos;
  redraw_ = ::isatty(::fileno(options_.out)) == 1 && !EnvironmentIs("TERM", "dumb");
  const char* no_color = std::getenv("NO_COLOR");
  style_.color = redraw_ && (no_color == nullptr || *no_color == '\0');
  style_.unicode = redraw_ && Utf8Locale();
  line_.label = options_.label;
  line_.total = options_.total;
  start_ = options_.now_nanos();
  last_shown_ = start_;
  // The pipe to a launcher that shows the progress of the whole job.
  if (!redraw_) launcher_ = NumberInEnvironment("TUTTI_PROGRESS_FD", -1);
  last_told_ = start_;
}

Progress::~Progress() { Finish(); }

bool Progress::Due() const {
  const auto interval = redraw_ ? options_.redraw_every : options_.print_every;
  return options_.now_nanos() - last_shown_ >= Nanos(interval);
}

void Progress::Update(int64_t done, std::span<const ProgressValue> values) {
  if (finished_) return;
  line_.done = done;
  dirty_ = true;
  updated_ = options_.now_nanos();
  names_.resize(values.size());
  line_.values.clear();
  for (size_t i = 0; i < values.size(); ++i) {
    if (names_[i] != values[i].first) names_[i] = values[i].first;
    line_.values.emplace_back(names_[i], values[i].second);
  }
  if (launcher_ >= 0 && updated_ - last_told_ >= Nanos(options_.redraw_every)) TellLauncher();
  if (Due()) Show();
}

void Progress::Measure() {
  const double seconds = std::max(double(updated_ - start_) * 1e-9, 1e-9);
  line_.per_second = double(line_.done) / seconds;
  line_.seconds_left = line_.done > 0 ? double(line_.total - line_.done) / line_.per_second : 0;
}

void Progress::TellLauncher() {
  Measure();
  const int columns = NumberInEnvironment("TUTTI_PROGRESS_COLUMNS", kLauncherColumns);
  const std::string text = Render(line_, {.width = std::max(columns, 1)}) + "\n";
  if (::write(launcher_, text.data(), text.size()) < 0) launcher_ = -1;
  last_told_ = updated_;
}

void Progress::Show() {
  Measure();
  if (redraw_) {
    style_.width = Columns(options_.out);
    FormatTo(options_.out, "\r\033[2K{}", Render(line_, style_));
  } else {
    FormatTo(options_.out, "{}\n", Render(line_, style_));
  }
  last_shown_ = options_.now_nanos();
  dirty_ = false;
}

void Progress::Finish() {
  if (finished_) return;
  if (dirty_) Show();
  if (launcher_ >= 0 && updated_ > last_told_) TellLauncher();
  if (redraw_ && line_.done > 0) WriteTo(options_.out, "\n");
  finished_ = true;
}

}  // namespace tutti
