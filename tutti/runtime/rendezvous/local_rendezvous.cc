#include "tutti/runtime/rendezvous/local_rendezvous.h"

#include <utility>

namespace tutti {

absl::Status LocalRendezvous::Send(const TransferKey& key, Tensor value) {
  Receiver receiver;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    Nothing nothing;
    switch (table_.Send(key.view(), value, nothing, receiver)) {
      case Table::Outcome::kWaits:
        return absl::OkStatus();
      case Table::Outcome::kTwice:
        return AlreadyExists("\"{}\" was sent twice in one step", key.text());
      case Table::Outcome::kMet:
        break;
    }
  }
  receiver(absl::OkStatus(), std::move(value));
  return absl::OkStatus();
}

void LocalRendezvous::Receive(const TransferKey& key, Receiver receiver) {
  absl::Status status;
  Tensor value;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    if (status.ok()) {
      Nothing nothing;
      const Table::Outcome outcome = table_.Receive(key, receiver, value, nothing);
      if (outcome == Table::Outcome::kWaits) return;
      if (outcome == Table::Outcome::kTwice) {
        status = AlreadyExists("\"{}\" is received twice in one step", key.text());
      }
    }
  }
  receiver(std::move(status), std::move(value));
}

void LocalRendezvous::Abort(absl::Status reason) {
  Table::Entries entries;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    entries = table_.TakeAll();
  }
  for (auto& [key, entry] : entries) {
    if (entry.receiver != nullptr) entry.receiver(reason, {});
  }
}

size_t LocalRendezvous::waiting() const {
  std::lock_guard lock(mutex_);
  return table_.entries().size();
}

}  // namespace tutti
