#pragma once

#include <string>

#include "tutti/device/kernel.h"

namespace tutti {

// What an asynchronous kernel is besides, if it can tell what its node waits for. A step that is
// out of time asks.
class Awaiting {
 public:
  // Of a node that was started and is not done: `Mutex "m", which token 3 holds`. Called on the
  // lane's thread, while the node may complete on another.
  virtual std::string Awaited(const KernelContext& context) const = 0;

 protected:
  ~Awaiting() = default;
};

}  // namespace tutti
