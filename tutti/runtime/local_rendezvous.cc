#include "tutti/runtime/local_rendezvous.h"

#include <utility>
#include <vector>

namespace tutti {

absl::Status LocalRendezvous::Send(const std::string& key, Tensor value) {
  Receiver receiver;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    const auto [it, first] = entries_.try_emplace(key);
    if (first) {
      it->second.value = std::move(value);
      return absl::OkStatus();
    }
    if (it->second.receiver == nullptr) {
      return AlreadyExists("\"{}\" was sent twice in one step", key);
    }
    receiver = std::move(it->second.receiver);
    entries_.erase(it);
  }
  receiver(absl::OkStatus(), std::move(value));
  return absl::OkStatus();
}

void LocalRendezvous::Receive(const std::string& key, Receiver receiver) {
  absl::Status status;
  Tensor value;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    if (status.ok()) {
      const auto [it, first] = entries_.try_emplace(key);
      if (first) {
        it->second.receiver = std::move(receiver);
        return;
      }
      if (it->second.receiver == nullptr) {
        value = std::move(it->second.value);
        entries_.erase(it);
      } else {
        status = AlreadyExists("\"{}\" is received twice in one step", key);
      }
    }
  }
  receiver(std::move(status), std::move(value));
}

void LocalRendezvous::Abort(absl::Status reason) {
  std::unordered_map<std::string, Entry> entries;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    entries.swap(entries_);
  }
  for (auto& [key, entry] : entries) {
    if (entry.receiver != nullptr) entry.receiver(reason, {});
  }
}

size_t LocalRendezvous::waiting() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace tutti
