#pragma once

#include "tutti/graph/input.h"

namespace tutti::nn {

// The rows of the variable `table` at `ids`: Gather(table, ids), whose gradient stays rows. Where
// the table lies on another device than the one that nodes are being built for, or in parts on
// several (graph/ops/state.h), each row that the batch uses is taken there once, and only these
// travel; so do their gradients, summed before.
Output LookUp(Input table, Input ids);

}  // namespace tutti::nn
