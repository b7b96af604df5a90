#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/compile/step_plan.h"

namespace tutti {

// When a node ran, on which device, and how many bytes it produced.
struct NodeRecord {
  std::string name;
  std::string op;
  std::string device;
  int64_t start_nanos = 0;
  int64_t end_nanos = 0;
  int64_t bytes = 0;
  std::string transfer;  // of Send and Recv: the key under which they meet
};

// The peak of a device's planned memory: the node during which the most bytes are in use, and the
// values that use them.
struct PeakRecord {
  struct Value {
    std::string name;
    int64_t bytes = 0;
  };
  std::string device;
  std::string node;
  std::vector<Value> values;  // the largest first
};

// What the nodes of a step did, those in the bodies of If and While included: each time they ran.
struct StepTrace {
  // Where the times of nodes count from, and when the answer left, by the clock of the process that
  // holds the trace.
  int64_t start_nanos = 0;
  int64_t answer_nanos = 0;
  std::vector<NodeRecord> nodes;
  int64_t arena_bytes = 0;
  std::vector<PeakRecord> peaks;  // of each device
};

// When a node of a plan ran.
struct NodeTiming {
  uint32_t node = 0;
  int64_t start_nanos = 0;
  int64_t end_nanos = 0;
};

// Adds what the timings of a run of `plan` tell.
void AppendRecords(const StepPlan& plan, std::span<const NodeTiming> timings,
                   std::vector<NodeRecord>& records);

// The peak of `plan`. Scratch has the name of its node, with "(scratch)" behind.
PeakRecord RecordPeak(const StepPlan& plan);

// Makes times count from `start_nanos` on, and puts the records in the order of their starts.
void SortFromStart(int64_t start_nanos, std::vector<NodeRecord>& records);

}  // namespace tutti
