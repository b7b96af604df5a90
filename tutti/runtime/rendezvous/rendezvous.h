#pragma once

#include <functional>

#include "tutti/base/status.h"
#include "tutti/runtime/rendezvous/transfer_key.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Where the Send and the Recv of a value meet, in one step. A key is used once a step (and once per
// iteration of the loops around it). Whoever comes first leaves the value, or a callback, and never
// blocks. Thread-safe.
class Rendezvous {
 public:
  using Receiver = std::function<void(absl::Status, Tensor)>;
  virtual ~Rendezvous() = default;

  // Leaves `value` under `key`. ALREADY_EXISTS if a value waits there; the reason of Abort after
  // that.
  virtual absl::Status Send(const TransferKey& key, Tensor value) = 0;

  // Calls `receiver` once: with the value, now or when it is sent, or with the reason of Abort. It
  // may run on any thread, without a lock held.
  virtual void Receive(const TransferKey& key, Receiver receiver) = 0;

  // Ends all waiting, and all later calls, with `reason`, which is not OK. Values that wait are
  // dropped.
  virtual void Abort(absl::Status reason) = 0;
};

}  // namespace tutti
