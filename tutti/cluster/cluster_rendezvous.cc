#include "tutti/cluster/cluster_rendezvous.h"

#include <set>
#include <utility>

namespace tutti {
namespace {

// A task that a step sends to was reached when the step was registered there, mostly by its master:
// this is for the first value between two tasks.
constexpr int64_t kPatience = 5'000'000'000;  // nanoseconds

absl::Status Push(Peer& peer, const StepId& id, std::string_view key, const Tensor& value) {
  WireMessage message = StartMessage(DataKind::kValue, 0, key.size() + BytesInFields(value));
  EncodeValue(id, key, value, message);
  return peer.SendValue(std::move(message));
}

}  // namespace

ClusterRendezvous::ClusterRendezvous(StepId id, std::shared_ptr<TaskPeers> peers)
    : id_(id), peers_(std::move(peers)) {}

ClusterRendezvous::~ClusterRendezvous() {
  for (const auto& [key, entry] : table_.entries()) entry.note.GiveBack();
}

bool ClusterRendezvous::IsHere(std::string_view device) const {
  return TaskOfDevice(device) == peers_->self().task;
}

std::shared_ptr<Peer> ClusterRendezvous::RouteTo(std::string_view task) {
  for (const auto& [name, peer] : routes_) {
    if (name == task) return peer;
  }
  std::string name(task);
  std::shared_ptr<Peer> peer = peers_->Find(name);
  if (peer != nullptr) routes_.emplace_back(std::move(name), peer);
  return peer;
}

absl::Status ClusterRendezvous::Send(const TransferKey& key, Tensor value) {
  const std::string_view destination = DestinationOf(key.text());
  if (IsHere(destination)) return Leave(key.view(), std::move(value), {});
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    peer = RouteTo(TaskOfDevice(destination));
  }
  if (peer != nullptr) return Push(*peer, id_, key.text(), value);
  peers_->Get(std::string(TaskOfDevice(destination)), kPatience,
              [self = weak_from_this(), id = id_, key = key.text(),
               value = std::move(value)](const absl::StatusOr<std::shared_ptr<Peer>>& reached) {
                const absl::Status status =
                    reached.ok() ? Push(**reached, id, key, value) : reached.status();
                const auto rendezvous = status.ok() ? nullptr : self.lock();
                if (rendezvous != nullptr) rendezvous->Abort(status);
              });
  return absl::OkStatus();
}

absl::Status ClusterRendezvous::Leave(const TransferKeyView& key, Tensor value, Window window) {
  Receiver receiver;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    if (status.ok()) {
      const Table::Outcome outcome = table_.Send(key, value, window, receiver);
      if (outcome == Table::Outcome::kWaits) return absl::OkStatus();
      if (outcome == Table::Outcome::kTwice) {
        status = AlreadyExists("\"{}\" was sent twice in one step", key.text);
      }
    }
  }
  window.GiveBack();
  if (status.ok()) receiver(absl::OkStatus(), std::move(value));
  return status;
}

absl::Status ClusterRendezvous::Deliver(const TransferKeyView& key, Tensor value,
                                        const std::shared_ptr<Peer>& from, uint64_t bytes) {
  if (!IsHere(DestinationOf(key.text)) ||
      TaskOfDevice(SourceOf(key.text)) != from->identity().task) {
    from->Taken(bytes);
    return InvalidArgument("{} sent a value under the key \"{}\"", from->description(), key.text);
  }
  return Leave(key, std::move(value), {from, bytes});
}

void ClusterRendezvous::Receive(const TransferKey& key, Receiver receiver) {
  absl::Status status, lost;
  Tensor value;
  Window window;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    if (status.ok()) {
      const Table::Outcome outcome = table_.Receive(key, receiver, value, window);
      if (outcome == Table::Outcome::kWaits) {
        if (lost_.empty()) return;
        const auto it = lost_.find(TaskOfDevice(SourceOf(key.text())));
        if (it == lost_.end()) return;
        lost = it->second;
      } else if (outcome == Table::Outcome::kTwice) {
        status = AlreadyExists("\"{}\" is received twice in one step", key.text());
      }
    }
  }
  if (!lost.ok()) return Abort(std::move(lost));
  window.GiveBack();
  receiver(std::move(status), std::move(value));
}

std::string ClusterRendezvous::Awaited() const {
  std::set<std::string_view> tasks;
  std::string text;
  std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : table_.entries()) {
    const std::string_view source = SourceOf(key.text());
    if (entry.receiver != nullptr && !IsHere(source)) tasks.insert(TaskOfDevice(source));
  }
  for (const std::string_view task : tasks) text.append(text.empty() ? "" : ", ").append(task);
  return text;
}

void ClusterRendezvous::TaskLost(const std::string& task, const absl::Status& reason) {
  bool awaited = false;
  {
    std::lock_guard lock(mutex_);
    lost_.emplace(task, reason);
    for (const auto& [key, entry] : table_.entries()) {
      awaited =
          awaited || (entry.receiver != nullptr && TaskOfDevice(SourceOf(key.text())) == task);
    }
  }
  if (awaited) Abort(reason);
}

void ClusterRendezvous::Abort(absl::Status reason) {
  Table::Entries entries;
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    entries = table_.TakeAll();
  }
  for (auto& [key, entry] : entries) {
    entry.note.GiveBack();
    if (entry.receiver != nullptr) entry.receiver(reason, {});
  }
}

}  // namespace tutti
