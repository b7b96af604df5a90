#pragma once

#include "tutti/compile/program.h"

namespace tutti {

// True if this part of a step takes less time than waking another thread. The thread that receives
// the request then runs it at once instead of handing it to the lane. Holds for a few nodes that
// touch little memory and wait for nothing: a read of parameters that a Send passes on, some rows
// of a table, an update of a counter. A value that is only passed on may have any size.
bool IsBrief(const Program& program);

}  // namespace tutti
