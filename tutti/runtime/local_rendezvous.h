#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "tutti/runtime/rendezvous.h"

namespace tutti {

// The rendezvous of devices in one process: a value is passed by reference. Receivers run on the
// thread that sends, receives or aborts. An entry is erased when Send and Recv have met.
class LocalRendezvous final : public Rendezvous {
 public:
  absl::Status Send(const std::string& key, Tensor value) override;
  void Receive(const std::string& key, Receiver receiver) override;
  void Abort(absl::Status reason) override;

  size_t waiting() const;  // values and receivers whose other side has not come

 private:
  struct Entry {
    Tensor value;
    Receiver receiver;  // empty: a value waits
  };

  mutable std::mutex mutex_;
  absl::Status aborted_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace tutti
