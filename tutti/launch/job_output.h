#pragma once

#include <cstdio>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/base/progress_text.h"

namespace tutti {

// What the tasks of a job say, on this process's stdout and stderr: whole lines, each with its role
// in front, and on a terminal below them one line with the job's progress, redrawn in place. Keeps
// the last lines of each task, and writes all of them to files where asked. Not thread-safe.
class JobOutput {
 public:
  JobOutput(std::vector<std::string> roles, std::FILE* out, std::FILE* err);
  ~JobOutput();
  JobOutput(const JobOutput&) = delete;
  JobOutput& operator=(const JobOutput&) = delete;

  // Also into <folder>/<role with - for spaces>.log. The error names what could not be made. A file
  // that cannot be written any more (a full disk) is told of once, and left out from there on.
  absl::Status OpenLogs(const std::string& folder);

  enum class Stream { kOut, kErr };
  // Some bytes of a task; lines may come in pieces.
  void Take(size_t task, Stream stream, std::string_view bytes);
  // The state of the job: a packed ProgressText, or any text; an empty one takes the line away.
  // Shown on a terminal only, in its width at that moment.
  void SetProgress(std::string_view line);
  // Shows the line that is not finished, if any.
  void Flush(size_t task);
  // A line of the launcher's own.
  void Say(std::string_view line);

  const std::deque<std::string>& last_lines(size_t task) const { return tasks_[task].last; }

 private:
  struct Task {
    std::string role;
    std::string pending[2];
    std::deque<std::string> last;
    std::string log_path;
    std::FILE* log = nullptr;  // null: none asked for, or it could not be written any more
  };
  void Line(Task& task, Stream stream, std::string_view line);
  void Keep(Task& task, std::string_view line);  // in its log
  void Erase();
  void Redraw();

  std::vector<Task> tasks_;
  std::FILE* out_;
  std::FILE* err_;
  bool terminal_;  // and one that can redraw a line
  bool color_;
  size_t width_ = 0;  // of the longest role
  ProgressText progress_;
  size_t drawn_ = 0;  // columns of the line that stands on the terminal
};

}  // namespace tutti
