#include "tutti/net/mesh.h"

#include <cstdint>
#include <utility>

namespace tutti::net {
namespace {

constexpr int64_t kSleepNanos = 100'000'000;

}  // namespace

Mesh::Mesh(std::unique_ptr<Transport> memory, std::unique_ptr<Transport> sockets)
    : memory_(std::move(memory)), sockets_(std::move(sockets)) {
  for (int peer = 0; peer < memory_->size(); ++peer) {
    near_.push_back(memory_->link(peer) != LinkKind::kSocket);
  }
  watcher_ = std::thread([this] { Watch(); });
}

Mesh::~Mesh() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    progressed_.notify_all();
  }
  sockets_->Wake();
  watcher_.join();
}

bool Mesh::Progress() {
  const bool near = memory_->Progress();
  const bool far = sockets_->Progress();
  const std::lock_guard lock(mutex_);
  if (rung_) {
    rung_ = false;
    progressed_.notify_one();
  }
  return near || far;
}

// What came stays there until Progress takes it, so the sockets are not looked at again before.
void Mesh::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    sockets_->Wait(kSleepNanos);
    lock.lock();
    if (stopping_) return;
    rung_ = true;
    memory_->Wake();
    progressed_.wait(lock, [this] { return !rung_ || stopping_; });
  }
}

}  // namespace tutti::net
