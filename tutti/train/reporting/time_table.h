#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/train/strategies/task_load.h"

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
  double steps = 0;    // that it made
  double samples = 0;  // of these steps
  // With parameter servers: bytes from and to them. `exposed` is all waiting within steps then.
  double read = 0, written = 0;

  bool has_servers() const { return read + written > 0; }
};

// A table for users, one worker a row:
//
//   worker    compute  comm hidden  comm exposed    input    reduced  waiting for
//   0           92.1%         5.2%          1.1%     0.3%    12.5 MB  worker 1 (0.8%)
//
// "reduced" is the data that the worker brought to collectives; what travels for it depends on the
// algorithm and the wire type. One worker has but a line: "compute 99.2%, waiting for input 0.8%".
// With parameter servers:
//
//   worker    compute  waiting    input       read    written  waiting for
//   0           62.1%    37.0%     0.3%    12.5 MB    12.5 MB  servers
std::string RenderTimeTable(std::span<const WorkerTime> workers);

// With parameter servers, in lockstep or within a bound: each worker is taken to wait for the
// worker that waits least. Fills in `slowest` and `waited`; waits of less than 1% of the time are
// ignored.
void FindSlowest(std::span<WorkerTime> workers);

// The servers between two moments, one a row:
//
//   server              busy  requests    received        sent  lock waits      cloned
//   /job:ps/task:0     41.2%     12000     12.5 MB     12.5 MB      0.1 ms      0.0 MB
std::string RenderServerTable(std::span<const TaskLoad> servers);

// As one line of text and back, to be sent to worker 0.
std::string ToText(const WorkerTime& time);
WorkerTime WorkerTimeFromText(const std::string& text);

}  // namespace tutti
