#include "tutti/runtime/rendezvous.h"

#include <utility>
#include <vector>

namespace tutti {

absl::Status Rendezvous::Send(const std::string& key, Tensor value) {
  Receiver receiver;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    Meeting& meeting = meetings_[key];
    if (meeting.sent) return AlreadyExists("\"{}\" was sent twice in one step", key);
    meeting.sent = true;
    if (meeting.receiver == nullptr) {
      meeting.value = std::move(value);
      return absl::OkStatus();
    }
    receiver = std::exchange(meeting.receiver, nullptr);
  }
  receiver(absl::OkStatus(), std::move(value));
  return absl::OkStatus();
}

void Rendezvous::Receive(const std::string& key, Receiver receiver) {
  absl::Status status;
  Tensor value;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    if (status.ok()) {
      Meeting& meeting = meetings_[key];
      if (!meeting.sent) {
        meeting.receiver = std::move(receiver);
        return;
      }
      value = std::exchange(meeting.value, {});
    }
  }
  receiver(std::move(status), std::move(value));
}

void Rendezvous::Abort(absl::Status reason) {
  std::vector<Receiver> waiting;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    for (auto& [key, meeting] : meetings_) {
      if (meeting.receiver != nullptr) waiting.push_back(std::exchange(meeting.receiver, nullptr));
    }
  }
  for (const Receiver& receiver : waiting) receiver(reason, {});
}

}  // namespace tutti
