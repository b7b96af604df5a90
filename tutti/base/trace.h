#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace tutti {

// One thing that took time, for ChromeTraceWriter.
struct TraceEvent {
  std::string name;
  std::string category = {};
  int64_t process = 0;  // rows are grouped by process, then by thread
  int64_t thread = 0;
  int64_t start_nanos = 0;
  int64_t duration_nanos = 0;
  // What a click on the event shows.
  using Argument = std::variant<int64_t, double, bool, std::string>;
  std::vector<std::pair<std::string, Argument>> args = {};
};

// An arrow from one event to another: from a Send to its Recv.
struct TraceArrow {
  // A moment within an event of that row.
  struct End {
    int64_t process = 0;
    int64_t thread = 0;
    int64_t nanos = 0;
  };
  std::string name;
  End from, to;
};

// Collects events and writes them as Chrome trace JSON, which chrome://tracing and Perfetto show as
// a timeline. Not thread-safe.
//
//   ChromeTraceWriter trace;
//   trace.NameThread(0, 1, "/cpu:0");
//   trace.Add({.name = "y", .category = "MatMul", .thread = 1, .duration_nanos = 1500});
//   TUTTI_RETURN_IF_ERROR(trace.Write("step.json"));
class ChromeTraceWriter {
 public:
  void Add(TraceEvent event) { events_.push_back(std::move(event)); }
  void Add(TraceArrow arrow) { arrows_.push_back(std::move(arrow)); }
  // The labels of the rows; numbers without a name are shown as numbers.
  void NameProcess(int64_t process, std::string_view name);
  void NameThread(int64_t process, int64_t thread, std::string_view name);

  // The whole trace as JSON. Bytes that are no UTF-8 become U+FFFD.
  std::string ToJson() const;
  // Writes it to `path`, replacing a file that is there. The error says what failed and why.
  absl::Status Write(const std::string& path) const;

 private:
  struct Label {
    std::string_view kind;  // process_name or thread_name
    int64_t process;
    int64_t thread;
    std::string name;
  };
  std::vector<Label> labels_;
  std::vector<TraceEvent> events_;
  std::vector<TraceArrow> arrows_;
};

// `text` as a JSON string, quotation marks included.
std::string JsonString(std::string_view text);

}  // namespace tutti
