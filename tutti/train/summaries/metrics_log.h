#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/train/metrics/metric.h"

namespace tutti {

// DIR/metrics.jsonl: what a training told, one JSON object a line, in the order of time:
//
//   {"step":100,"kind":"train","time":1763424000.25,"loss":0.31,"samples_per_second":5120}
//   {"step":100,"kind":"eval","time":1763424001.5,"accuracy":0.89,"loss":0.3}
//
// A number that is not finite is null. Not thread-safe.
class MetricsLog {
 public:
  MetricsLog() = default;
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  // Opens the file of `directory`, which must exist, for a training that goes on from `step`: lines
  // of later steps, which will come again, and a line that is cut off are taken away.
  absl::Status Open(const std::string& directory, int64_t step);
  bool is_open() const { return file_ >= 0; }

  absl::Status Append(int64_t step, std::string_view kind, double time, const Metrics& values);

 private:
  int file_ = -1;
  std::string path_;
};

}  // namespace tutti
