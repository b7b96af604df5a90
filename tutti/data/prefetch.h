#pragma once

#include <memory>

#include "tutti/data/dataset.h"

namespace tutti {

// Reads ahead of its user: a thread of its own keeps up to `batches` ready. What the inner reader
// throws comes out of the Next that would have given that batch. Where no thread can be started,
// this is the inner reader itself.
std::unique_ptr<DatasetReader> MakePrefetchReader(std::unique_ptr<DatasetReader> inner,
                                                  int batches);

}  // namespace tutti
