#pragma once

#include <cstdint>
#include <span>

#include "tutti/collective/schedule/schedule.h"
#include "tutti/tensor/dtype.h"

namespace tutti::collective {

// What a Group asks for.
struct Call {
  Operation operation = Operation::kBarrier;
  const void* input = nullptr;  // kAllToAll; `data` is its output
  void* data = nullptr;
  int64_t count = 0;                // elements: of the data, or of a chunk
  std::span<const int64_t> counts;  // per rank, where they differ
  DType dtype = DType::kUInt8;
};

}  // namespace tutti::collective
