#pragma once

#include <cstdint>

namespace tutti {

// Decides when an action that happens every N steps is due: when a multiple of N has been reached
// or passed since the last time. If the step grows by one, the action is due at multiples of N. A
// worker that is not in lockstep with others, or whose gradients were dropped, sees steps that skip
// numbers, including multiples of N.
//
//   EverySteps every(100);
//   every.Begin(start.step);
//   if (every.Reached(end.step)) Log(end);
class EverySteps {
 public:
  // 0: never.
  explicit EverySteps(int64_t every = 0) : every_(every) {}

  // Call it when a training begins or resumes after `step` updates, and after the action was done.
  void Begin(int64_t step) { last_ = step; }
  // Is it due after this step? Steps that go back, as after a restore, are counted from there.
  bool Due(int64_t step) const {
    const int64_t before = step < last_ ? step - 1 : last_;
    return every_ > 0 && step / every_ > before / every_;
  }
  // The same, once for each step.
  bool Reached(int64_t step) {
    const bool due = Due(step);
    Begin(step);
    return due;
  }

 private:
  int64_t every_;
  int64_t last_ = 0;
};

}  // namespace tutti
