#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/progress_text.h"

namespace tutti {

// A number beside the bar: {"loss", 0.312}.
using ProgressValue = std::pair<std::string_view, double>;

// How far a piece of work is, as one line of text.
struct ProgressLine {
  std::string label = "step";
  int64_t done = 0;
  int64_t total = 0;  // 0: not known, so there is neither bar nor time left
  double per_second = 0;
  double seconds_left = 0;  // below 0: the work is over, and this is not shown
  std::vector<ProgressValue> values = {};
};

// "step  1200/4690 [=====>        ]  256/s  loss 0.3120  0:14 left". A line that would be wider
// than the terminal loses its bar, then what stands at its end.
std::string Render(const ProgressLine& line, const ProgressStyle& style);

struct ProgressOptions {
  std::string label = "step";
  int64_t total = 0;
  int64_t start = 0;  // of the total, what was done before: it counts for no rate
  std::FILE* out = stderr;
  std::chrono::milliseconds redraw_every = std::chrono::milliseconds(100);
  std::chrono::milliseconds print_every = std::chrono::seconds(10);  // where nothing is redrawn
  std::function<int64_t()> now_nanos = {};                           // empty: NowNanos
};

// Shows the progress of a loop: on a terminal a bar that is redrawn in place, elsewhere one plain
// line per interval, so that logs stay short. Under a launcher (TUTTI_PROGRESS_FD names the pipe to
// it) the progress is also sent to the launcher, which shows the bar of the whole job until Finish
// removes it. NO_COLOR and TERM=dumb are honoured. Cheap enough to call in every step. Not
// thread-safe.
//
//   Progress progress({.label = "step", .total = 1000});
//   for (...) { ...; progress.Update(step + 1, {{"loss", loss}}); }
//   progress.Finish();
class Progress {
 public:
  explicit Progress(const ProgressOptions& options = {});
  ~Progress();  // Finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Is it time to show something? Lets the caller skip work that is only for Update.
  bool Due() const;
  void Update(int64_t done, std::span<const ProgressValue> values);
  void Update(int64_t done, std::initializer_list<ProgressValue> values = {}) {
    Update(done, std::span(values.begin(), values.size()));
  }
  // Shows the last state, if it was not, without the time left, and ends the line. Later calls do
  // nothing.
  void Finish();

 private:
  void Show();
  void Measure();
  void TellLauncher();

  ProgressOptions options_;
  bool redraw_ = false;  // the output is a terminal
  ProgressStyle style_;
  int64_t start_ = 0;
  int64_t last_shown_ = 0;
  int launcher_ = -1;  // the pipe to a launcher
  int64_t last_told_ = 0;
  int64_t updated_ = 0;
  bool dirty_ = false;  // the last state was not shown
  bool finished_ = false;
  ProgressLine line_;
  std::vector<std::string> names_;  // what line_.values points to
};

}  // namespace tutti
