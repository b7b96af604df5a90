#include "tutti/cluster/cluster_rendezvous.h"

#include <utility>

#include "tutti/cluster/transfer_key.h"

namespace tutti {
namespace {

// A task that a step sends to was reached when the step was registered there, mostly by its master:
// this is for the first value between two tasks.
constexpr int64_t kPatience = 5'000'000'000;  // nanoseconds

absl::Status Push(Peer& peer, const SentValue& value) {
  WireMessage message = StartMessage(DataKind::kValue, 0);
  EncodeValue(value, message);
  return peer.Send(std::move(message));
}

}  // namespace

ClusterRendezvous::ClusterRendezvous(StepId id, std::shared_ptr<TaskPeers> peers)
    : id_(id), peers_(std::move(peers)) {}

ClusterRendezvous::~ClusterRendezvous() {
  for (const auto& [key, early] : early_) early.from->Taken(early.bytes);
}

bool ClusterRendezvous::IsHere(std::string_view device) const {
  return TaskOfDevice(device) == peers_->self().task;
}

absl::Status ClusterRendezvous::Send(const std::string& key, Tensor value) {
  const std::string_view destination = DestinationOf(key);
  if (IsHere(destination)) return local_.Send(key, std::move(value));
  const std::string task(TaskOfDevice(destination));
  SentValue sent{id_, key, std::move(value)};
  if (const std::shared_ptr<Peer> peer = peers_->Find(task)) {
    return Push(*peer, sent);
  }
  peers_->Get(task, kPatience,
              [self = weak_from_this(),
               sent = std::move(sent)](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
                const absl::Status status = peer.ok() ? Push(**peer, sent) : peer.status();
                const auto rendezvous = status.ok() ? nullptr : self.lock();
                if (rendezvous != nullptr) rendezvous->Abort(status);
              });
  return absl::OkStatus();
}

void ClusterRendezvous::Receive(const std::string& key, Receiver receiver) {
  if (IsHere(SourceOf(key))) {
    local_.Receive(key, std::move(receiver));
    return;
  }
  const std::string task(TaskOfDevice(SourceOf(key)));
  {
    std::lock_guard lock(mutex_);
    ++awaited_[task];
  }
  local_.Receive(key,
                 [this, key, receiver = std::move(receiver)](absl::Status status, Tensor value) {
                   Arrived(key);
                   receiver(std::move(status), std::move(value));
                 });
  absl::Status lost;
  {
    std::lock_guard lock(mutex_);
    const auto it = lost_.find(task);
    if (it != lost_.end() && awaited_.contains(task)) lost = it->second;
  }
  if (!lost.ok()) Abort(std::move(lost));
}

void ClusterRendezvous::Arrived(const std::string& key) {
  Early early;
  {
    std::lock_guard lock(mutex_);
    const auto waiting = awaited_.find(TaskOfDevice(SourceOf(key)));
    if (--waiting->second == 0) awaited_.erase(waiting);
    if (const auto it = early_.find(key); it != early_.end()) {
      early = std::move(it->second);
      early_.erase(it);
    }
  }
  if (early.from != nullptr) early.from->Taken(early.bytes);
}

absl::Status ClusterRendezvous::Deliver(const std::string& key, Tensor value,
                                        std::shared_ptr<Peer> from, uint64_t bytes) {
  if (!IsHere(DestinationOf(key)) || TaskOfDevice(SourceOf(key)) != from->identity().task) {
    from->Taken(bytes);
    return InvalidArgument("{} sent a value under the key \"{}\"", from->description(), key);
  }
  bool first = true;
  if (bytes > 0) {
    std::lock_guard lock(mutex_);
    first = early_.try_emplace(key, Early{from, bytes}).second;
  }
  if (!first) {
    from->Taken(bytes);
    return AlreadyExists("\"{}\" was sent twice in one step", key);
  }
  const absl::Status status = local_.Send(key, std::move(value));
  if (status.ok() || bytes == 0) return status;
  size_t left = 0;  // an Abort may have given the bytes back
  {
    std::lock_guard lock(mutex_);
    left = early_.erase(key);
  }
  if (left > 0) from->Taken(bytes);
  return status;
}

std::string ClusterRendezvous::Awaited() const {
  std::lock_guard lock(mutex_);
  std::string tasks;
  for (const auto& [task, count] : awaited_) tasks += (tasks.empty() ? "" : ", ") + task;
  return tasks;
}

void ClusterRendezvous::TaskLost(const std::string& task, const absl::Status& reason) {
  {
    std::lock_guard lock(mutex_);
    lost_.emplace(task, reason);
    if (!awaited_.contains(task)) return;
  }
  Abort(reason);
}

void ClusterRendezvous::Abort(absl::Status reason) {
  local_.Abort(std::move(reason));
  std::unordered_map<std::string, Early> early;
  {
    std::lock_guard lock(mutex_);
    early.swap(early_);
  }
  for (const auto& [key, entry] : early) entry.from->Taken(entry.bytes);
}

}  // namespace tutti
