#include "tutti/net/tcp/entrance.h"

#include <utility>

namespace tutti::net::tcp {

Refusal Entrance::Admit(const Identity& /*peer*/, std::string* why) const {
  const std::lock_guard lock(mutex_);
  if (poller_ != nullptr) return Refusal::kNone;
  *why = "the rank has closed its links";
  return Refusal::kNotAdmitted;
}

void Entrance::Give(const Identity& peer, Socket socket) {
  const std::lock_guard lock(mutex_);
  if (poller_ == nullptr) return;  // closed since Admit
  given_.push_back({peer, std::move(socket)});
  empty_.store(false, std::memory_order_release);
  poller_->Wake();
}

std::vector<Connection> Entrance::Take() {
  const std::lock_guard lock(mutex_);
  empty_.store(true, std::memory_order_release);
  return std::exchange(given_, {});
}

void Entrance::Close() {
  const std::lock_guard lock(mutex_);
  poller_ = nullptr;
  given_.clear();
  empty_.store(true, std::memory_order_release);
}

}  // namespace tutti::net::tcp
