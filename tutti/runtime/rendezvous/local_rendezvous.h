#pragma once

#include <mutex>

#include "tutti/runtime/rendezvous/meeting_table.h"
#include "tutti/runtime/rendezvous/rendezvous.h"

namespace tutti {

// The rendezvous of devices in one process: a value is passed by reference. Receivers run on the
// thread that sends, receives or aborts.
class LocalRendezvous final : public Rendezvous {
 public:
  absl::Status Send(const TransferKey& key, Tensor value) override;
  void Receive(const TransferKey& key, Receiver receiver) override;
  void Abort(absl::Status reason) override;

  size_t waiting() const;  // values and receivers whose other side has not come

 private:
  struct Nothing {};
  using Table = MeetingTable<Nothing>;

  mutable std::mutex mutex_;
  absl::Status aborted_;
  Table table_;
};

}  // namespace tutti
