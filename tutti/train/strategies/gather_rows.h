#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/graph/ops/collective.h"
#include "tutti/train/optimizers/gradient_list.h"

namespace tutti {

// How a collective of values of `dtype` is called that has `key`.
using CollectiveCall = std::function<CollectiveOptions(std::string key, DType dtype)>;

// Replaces each gradient of `list` that is rows by the rows of all workers: see gather_rows.cc.
// Every row number is there at most once a worker, and the workers' rows are in the order of their
// ranks. Two AllGathers for all tables of one type and row length.
void GatherRows(const CollectiveCall& call, std::vector<GradientAndVariable>& list);

}  // namespace tutti
