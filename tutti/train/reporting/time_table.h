#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Where the time of one worker's training went, in seconds.
struct WorkerTime {
  double total = 0;
  double input = 0;    // waiting for a batch
  double compute = 0;  // what is left
  double hidden = 0;   // communication under way while the worker computed
  double exposed = 0;  // communication with nothing to compute meanwhile
  double bytes = 0;    // brought to collectives
  int slowest = -1;    // the worker that was waited for longest
  double waited = 0;   // for it
};

// A table for people, one worker a row:
//
//   worker    compute  comm hidden  comm exposed    input    reduced  waiting for
//   0           92.1%         5.2%          1.1%     0.3%    12.5 MB  worker 1 (0.8%)
//
// "reduced" is the data that the worker brought to collectives; what travels for it depends on the
// algorithm and the wire type. One worker has but a line: "compute 99.2%, waiting for input 0.8%".
std::string RenderTimeTable(std::span<const WorkerTime> workers);

// As one line of text and back, to be sent to worker 0.
std::string ToText(const WorkerTime& time);
WorkerTime WorkerTimeFromText(const std::string& text);

}  // namespace tutti
