#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Memory for values whose size only the run can tell and for results that leave the step: blocks
// that come back when their last reference goes, and are used again. Sizes are rounded up to four
// steps per power of two, so a steady step finds what it needs and calls no system allocator.
// Thread-safe; outlives its blocks by shared ownership.
class MemoryPool {
 public:
  MemoryPool();
  ~MemoryPool();

  absl::StatusOr<Tensor> Allocate(DType dtype, const Shape& shape);

  // Where blocks of at least `least` bytes come from from here on: memory that other processes can
  // read in place. An empty reference means that there is none, and the system's is used.
  using Source = std::function<BufferRef(size_t bytes)>;
  void SetSource(Source source, size_t least);
  // Would a block of so many bytes come from there?
  bool Shares(size_t bytes) const;

  // Bytes in use by tensors now, at most since the start, and lying idle.
  struct Usage {
    int64_t in_use = 0;
    int64_t peak = 0;
    int64_t idle = 0;
  };
  Usage usage() const;

  // Frees what lies idle.
  void Trim();

 private:
  struct State;
  class Block;
  std::shared_ptr<State> state_;
};

}  // namespace tutti
