#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/train/every_steps.h"

namespace tutti {

// When checkpoints are written while a training runs: "500" every so many steps, "60s" every so
// many seconds of a monotonic clock, "0" never but at the end.
class SaveSchedule {
 public:
  // Throws Error (kInvalidArgument).
  explicit SaveSchedule(std::string_view text);
  // What should have been given; empty if the text is right.
  static std::string Check(std::string_view text);

  // After a step at `now`, in nanoseconds.
  bool Due(int64_t step, int64_t now) const {
    return steps_.Due(step) || (nanos_ > 0 && now - last_ >= nanos_);
  }
  // A save, or the training, begins.
  void Begin(int64_t step, int64_t now) {
    steps_.Begin(step);
    last_ = now;
  }

 private:
  EverySteps steps_;
  int64_t nanos_ = 0;
  int64_t last_ = 0;
};

}  // namespace tutti
