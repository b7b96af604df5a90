#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "tutti/base/status.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Where the Send and the Recv of a value meet, in one step. A key is used once a step (and once an
// iteration, inside a loop). Whoever comes first leaves the value, or a callback, and never blocks.
// Thread-safe.
class Rendezvous {
 public:
  using Receiver = std::function<void(absl::Status, Tensor)>;

  // Leaves `value` under `key`. ALREADY_EXISTS if something was sent there before; the reason of
  // Abort after that.
  absl::Status Send(const std::string& key, Tensor value);

  // Calls `receiver` once: with the value, now or when it is sent, or with the reason of Abort. It
  // runs on the thread that sends, receives or aborts, without a lock held.
  void Receive(const std::string& key, Receiver receiver);

  // Ends all waiting, and all later calls, with `reason`, which is not OK.
  void Abort(absl::Status reason);

 private:
  struct Meeting {
    bool sent = false;
    Tensor value;
    Receiver receiver;
  };

  std::mutex mutex_;
  absl::Status aborted_;
  std::unordered_map<std::string, Meeting> meetings_;
};

}  // namespace tutti
