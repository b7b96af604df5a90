#pragma once

#include <cstdint>
#include <span>

#include "tutti/client/session.h"
#include "tutti/train/hooks/hook.h"
#include "tutti/train/strategies/peers.h"

namespace tutti {

// The joint loss of a step is no number. Every worker looks for the first value of its own step,
// from the batch to its loss, that is not finite; all tell each other, and every one throws an
// Error (kOutOfRange) that names the step, the worker and that tensor, or the gradient that the
// step has found to be bad. The updates of the step must have changed nothing. `rank` is this
// worker's, also where `peers` are only this worker.
[[noreturn]] void ThrowBadValues(Peers& peers, int rank, Output loss, const StepEnd& end);

// A step tells the loss from before its update, so the last update of a training shows in no loss.
// Computes the loss of the last batch once more, and throws an Error (kOutOfRange) like that above
// on every worker if it is no number on one. `rank` is this worker's, also where `peers` are only
// this worker.
void CheckLastUpdate(Peers& peers, int rank, Output loss, const TrainingEnd& end);

}  // namespace tutti
