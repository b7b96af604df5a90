#include "tutti/net/mesh.h"

#include <cstdint>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::net {
namespace {

constexpr int64_t kSleepNanos = 100'000'000;

}  // namespace

Mesh::Mesh(std::unique_ptr<Transport> memory, std::unique_ptr<Transport> sockets)
    : memory_(std::move(memory)), sockets_(std::move(sockets)) {
  for (int peer = 0; peer < memory_->size(); ++peer) {
    near_.push_back(memory_->link(peer) != LinkKind::kSocket);
  }
}

absl::StatusOr<std::unique_ptr<Transport>> Mesh::Create(std::unique_ptr<Transport> memory,
                                                        std::unique_ptr<Transport> sockets) {
  std::unique_ptr<Mesh> mesh(new Mesh(std::move(memory), std::move(sockets)));
  TUTTI_ASSIGN_OR_RETURN(mesh->watcher_, StartThread("the thread that waits for sockets",
                                                     [made = mesh.get()] { made->Watch(); }));
  return std::unique_ptr<Transport>(std::move(mesh));
}

Mesh::~Mesh() {
  if (!watcher_.joinable()) return;
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
