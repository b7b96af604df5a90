#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// Registered memory on loan from a ScratchPool.
using Scratch = std::unique_ptr<net::RegisteredMemory>;

// Registered memory through which ordinary memory is staged. It is kept for the next operation: in
// the steady state nothing is allocated. Not thread-safe.
class ScratchPool {
 public:
  explicit ScratchPool(net::Transport* transport) : transport_(transport) {}

  // At least `bytes` of memory, its contents unknown: the smallest that fits.
  absl::StatusOr<Scratch> Take(size_t bytes);
  void Return(Scratch scratch);

 private:
  net::Transport* const transport_;
  std::vector<Scratch> free_;
};

}  // namespace tutti::collective
