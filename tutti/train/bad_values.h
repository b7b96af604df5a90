#pragma once

#include <cstdint>
#include <span>

#include "tutti/client/session.h"
#include "tutti/train/run_config.h"

namespace tutti {

// The joint loss of a step is no number. Every worker looks for the first value of its own step,
// from the batch to its loss, that is not finite; all tell each other, and every one throws an
// Error (kOutOfRange) that names the step, the worker and that tensor. `feeds` are those of the
// step, whose updates must have changed nothing.
[[noreturn]] void ThrowBadValues(const RunConfig& config, Session& session, Output loss,
                                 std::span<const Feed> feeds, int64_t step, double joint_loss);

}  // namespace tutti
