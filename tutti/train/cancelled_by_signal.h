#pragma once

#include <thread>

#include "tutti/base/cancellation.h"

namespace tutti {

// Cancels, while it lives, once a signal asks for an end (stop.h): the handler itself may take no
// lock. For waits before the first step.
class CancelledBySignal {
 public:
  CancelledBySignal();  // throws Error when it cannot start its thread
  const Cancellation* get() const { return &cancellation_; }

 private:
  void Watch(const std::stop_token& stop);

  Cancellation cancellation_;
  std::jthread watch_;
};

}  // namespace tutti
