#include "tutti/train/reporting/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"

namespace tutti {
namespace {

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

bool EnvironmentIs(const char* name, std::string_view value) {
  const char* found = std::getenv(name);
  return found != nullptr && found == value;
}

ProgressText TextOf(const ProgressLine& line) {
  const std::string total = line.total > 0 ? fmt::format("{}", line.total) : "";
  ProgressText text;
  text.front = line.total > 0
                   ? fmt::format("{} {:>{}}/{}", line.label, line.done, total.size(), total)
                   : fmt::format("{} {}", line.label, line.done);
  text.facts.push_back(Rate(line.per_second));
  for (const auto& [name, value] : line.values) {
    text.facts.push_back(fmt::format("{} {:.4f}", name, value));
  }
  if (line.total > 0) {
    if (line.seconds_left >= 0) text.facts.push_back(Duration(line.seconds_left) + " left");
    text.share = double(line.done) / double(line.total);
  }
  return text;
}

}  // namespace

std::string Render(const ProgressLine& line, const ProgressStyle& style) {
  return Fit(TextOf(line), style);
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
  if (!redraw_) launcher_ = LauncherPipe();
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
  const int64_t own = line_.done - options_.start;
  line_.per_second = double(own) / seconds;
  line_.seconds_left = own > 0 ? double(line_.total - line_.done) / line_.per_second : 0;
  if (finished_ && line_.done < line_.total) line_.seconds_left = -1;
}

void Progress::TellLauncher() {
  Measure();
  if (!tutti::TellLauncher(launcher_, Pack(TextOf(line_)))) launcher_ = -1;
  last_told_ = updated_;
}

void Progress::Show() {
  Measure();
  if (redraw_) {
    style_.width = TerminalColumns(options_.out);
    FormatTo(options_.out, "\r\033[2K{}", Render(line_, style_));
  } else {
    FormatTo(options_.out, "{}\n", Render(line_, style_));
  }
  last_shown_ = options_.now_nanos();
  dirty_ = false;
}

void Progress::Finish() {
  if (finished_) return;
  finished_ = true;
  // The bar on a terminal still has the time left.
  if (dirty_ || (redraw_ && line_.done > 0 && line_.done < line_.total)) Show();
  // What comes after the work is not shown above its last state: an empty line takes the bar away.
  if (launcher_ >= 0 && !tutti::TellLauncher(launcher_, "")) launcher_ = -1;
  if (redraw_ && line_.done > 0) WriteTo(options_.out, "\n");
}

}  // namespace tutti
