#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// How far a piece of work is, in parts that are put together for a given width:
// "step 1200/4690", {"256/s", "loss 0.3120", "0:14 left"}, 0.256.
struct ProgressText {
  std::string front;
  std::vector<std::string> facts = {};  // the most important first
  double share = -1;                    // of the work that is done, 0 to 1; below 0: not known
  bool operator==(const ProgressText&) const = default;
};

struct ProgressStyle {
  int width = 0;       // columns of the terminal; 0: no bar, just the facts
  bool color = false;  // paint the bar
  bool unicode = false;
};

// "step 1200/4690 [==>        ]  256/s  loss 0.3120  0:14 left", one column narrower than the
// terminal. Where that is too wide the bar goes first, then the facts from the last on.
std::string Fit(const ProgressText& text, const ProgressStyle& style);

// As one line without its end, for the pipe to a launcher, and back. Nothing where the line is
// something else.
std::string Pack(const ProgressText& text);
std::optional<ProgressText> UnpackProgress(std::string_view packed);

// Lines on the same pipe that inform the launcher: this task waits for the other tasks to appear;
// they have all appeared; the job continues without workers that are lost.
inline constexpr std::string_view kWaitsForOthers = "\2waits for others";
inline constexpr std::string_view kHasOthers = "\2has others";
inline constexpr std::string_view kSurvivesLosses = "\2survives losses";

// The pipe to the launcher that started this process, from TUTTI_PROGRESS_FD; -1: there is none.
int LauncherPipe();
// Writes a line to it. False if nobody reads it any more.
bool TellLauncher(int pipe, std::string_view line);

}  // namespace tutti
