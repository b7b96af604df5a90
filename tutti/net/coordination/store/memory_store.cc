#include "tutti/net/coordination/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr double kShortestLease = 0.01;
constexpr double kLongestLease = 86'400;

}  // namespace

MemoryStore::~MemoryStore() { TUTTI_CHECK(watchers_.empty()); }

int64_t MemoryStore::revision() const {
  const Lock lock(mutex_);
  return revision_;
}

// Keys -------------------------------------------------------------------------------------------

absl::Status MemoryStore::CheckVersion(const std::string& key,
                                       std::optional<int64_t> if_version) const {
  if (!if_version.has_value()) return absl::OkStatus();
  const auto found = entries_.find(key);
  const int64_t version = found == entries_.end() ? 0 : found->second.version;
  if (version == *if_version) return absl::OkStatus();
  const std::string there =
      version == 0 ? "there is no such key" : fmt::format("it is {}", version);
  const std::string wanted =
      *if_version == 0 ? "no such key" : fmt::format("version {}", *if_version);
  return FailedPrecondition("key '{}': expected {}, but {}", Printable(key), wanted, there);
}

absl::StatusOr<int64_t> MemoryStore::Put(const std::string& key, std::string value,
                                         const PutOptions& options) {
  if (key.empty() || key.size() > options_.max_key_bytes ||
      value.size() > options_.max_value_bytes) {
    return InvalidArgument("key of {} bytes with a value of {}; expected 1 to {} and at most {}",
                           key.size(), value.size(), options_.max_key_bytes,
                           options_.max_value_bytes);
  }
  Lock lock(mutex_);
  ExpireDue();
  absl::Status status = CheckVersion(key, options.if_version);
  if (status.ok() && options.guard.has_value()) {
    status = CheckVersion(options.guard->key, options.guard->version);
  }
  const auto lease = leases_.find(options.lease);
  if (status.ok() && options.lease != 0 && lease == leases_.end()) {
    status = NotFound("lease {} is over", options.lease);
  }
  const auto found = entries_.find(key);
  const size_t before = found == entries_.end() ? 0 : key.size() + found->second.value.size();
  const size_t after = key.size() + value.size();
  if (status.ok() && bytes_ - before + after > options_.max_total_bytes) {
    status = ResourceExhausted("the store would hold {} bytes with key '{}'; it may hold {}",
                               bytes_ - before + after, Printable(key), options_.max_total_bytes);
  }
  if (!status.ok()) {
    Tell(lock);
    return status;
  }
  StoreEntry& entry = entries_[key];
  if (entry.lease != 0) leases_.at(entry.lease).keys.erase(key);
  if (options.lease != 0) lease->second.keys.insert(key);
  bytes_ += after - before;
  entry.key = key;
  entry.value = std::move(value);
  entry.version = ++revision_;
  if (entry.created == 0) entry.created = revision_;
  entry.lease = options.lease;
  Note({StoreEvent::Kind::kPut, entry});
  const int64_t revision = revision_;
  Tell(lock);
  return revision;
}

absl::StatusOr<int64_t> MemoryStore::Delete(const std::string& key,
                                            std::optional<int64_t> if_version) {
  Lock lock(mutex_);
  ExpireDue();
  absl::Status status = CheckVersion(key, if_version);
  const auto found = entries_.find(key);
  if (status.ok() && found == entries_.end()) {
    status = NotFound("there is no key '{}'", Printable(key));
  }
  if (status.ok()) Erase(found);
  const int64_t revision = revision_;
  Tell(lock);
  if (!status.ok()) return status;
  return revision;
}

void MemoryStore::Erase(std::map<std::string, StoreEntry>::iterator found) {
  const StoreEntry& entry = found->second;
  if (const auto lease = leases_.find(entry.lease); lease != leases_.end()) {
    lease->second.keys.erase(entry.key);
  }
  bytes_ -= entry.key.size() + entry.value.size();
  StoreEvent event{StoreEvent::Kind::kDelete, {.key = entry.key, .version = ++revision_}};
  entries_.erase(found);
  Note(std::move(event));
}

absl::StatusOr<Store::Range> MemoryStore::List(std::string_view prefix) {
  Lock lock(mutex_);
  ExpireDue();
  Range range;
  for (auto entry = entries_.lower_bound(std::string(prefix));
       entry != entries_.end() && entry->first.starts_with(prefix); ++entry) {
    range.entries.push_back(entry->second);
  }
  range.revision = revision_;
  Tell(lock);
  return range;
}

absl::StatusOr<std::optional<StoreEntry>> MemoryStore::Get(const std::string& key) {
  Lock lock(mutex_);
  ExpireDue();
  std::optional<StoreEntry> entry;
  if (const auto found = entries_.find(key); found != entries_.end()) entry = found->second;
  Tell(lock);
  return entry;
}

// Leases -----------------------------------------------------------------------------------------

absl::StatusOr<LeaseId> MemoryStore::Grant(double seconds) {
  if (!(seconds >= kShortestLease && seconds <= kLongestLease)) {
    return InvalidArgument("a lease of {} s; expected {} to {} s", seconds, kShortestLease,
                           kLongestLease);
  }
  Lock lock(mutex_);
  ExpireDue();
  if (leases_.size() >= options_.max_leases) {
    Tell(lock);
    return ResourceExhausted("there are {} leases already", options_.max_leases);
  }
  const LeaseId id = ++last_lease_;
  const auto nanos = static_cast<int64_t>(seconds * 1e9);
  leases_[id] = {.nanos = nanos, .end = options_.now() + nanos};
  ends_.emplace(leases_[id].end, id);
  Tell(lock);
  return id;
}

absl::Status MemoryStore::KeepAlive(LeaseId lease) {
  Lock lock(mutex_);
  ExpireDue();
  const auto found = leases_.find(lease);
  const bool there = found != leases_.end();
  if (there) {
    ends_.erase({found->second.end, lease});
    found->second.end = options_.now() + found->second.nanos;
    ends_.emplace(found->second.end, lease);
  }
  Tell(lock);
  return there ? absl::OkStatus() : NotFound("lease {} is over", lease);
}

absl::Status MemoryStore::Revoke(LeaseId lease) {
  Lock lock(mutex_);
  ExpireDue();
  const auto found = leases_.find(lease);
  const bool there = found != leases_.end();
  if (there) EndLease(found);
  Tell(lock);
  return there ? absl::OkStatus() : NotFound("lease {} is over", lease);
}

void MemoryStore::EndLease(std::map<LeaseId, Lease>::iterator found) {
  const Lease lease = std::move(found->second);
  ends_.erase({lease.end, found->first});
  leases_.erase(found);
  for (const std::string& key : lease.keys) Erase(entries_.find(key));
}

void MemoryStore::ExpireDue() {
  const int64_t now = options_.now();
  while (!ends_.empty() && ends_.begin()->first <= now) {
    EndLease(leases_.find(ends_.begin()->second));
  }
}

int64_t MemoryStore::Expire() {
  Lock lock(mutex_);
  ExpireDue();
  const int64_t next = ends_.empty() ? 0 : ends_.begin()->first;
  Tell(lock);
  return next;
}

// Watches ----------------------------------------------------------------------------------------

class MemoryStore::WatchHandle final : public Watch {
 public:
  WatchHandle(MemoryStore* store, std::shared_ptr<Watcher> watcher)
      : store_(store), watcher_(std::move(watcher)) {}
  ~WatchHandle() override { store_->EndWatch(watcher_); }

 private:
  MemoryStore* const store_;
  const std::shared_ptr<Watcher> watcher_;
};

absl::StatusOr<std::unique_ptr<Store::Watch>> MemoryStore::StartWatch(std::string prefix,
                                                                      int64_t from,
                                                                      OnEvents on_events,
                                                                      OnEnd /*on_end*/) {
  Lock lock(mutex_);
  ExpireDue();
  // Revisions run on without gaps, so the history goes back to this one.
  const int64_t oldest = revision_ + 1 - static_cast<int64_t>(history_.size());
  if (from < oldest) {
    Tell(lock);
    return OutOfRange("changes since revision {} are asked for; they are known since {}", from,
                      oldest);
  }
  auto watcher = std::make_shared<Watcher>();
  watcher->prefix = std::move(prefix);
  watcher->on_events = std::move(on_events);
  for (const StoreEvent& event : history_) {
    if (event.entry.version >= from && event.entry.key.starts_with(watcher->prefix)) {
      watcher->pending.push_back(event);
    }
  }
  watchers_.push_back(watcher);
  auto handle = std::make_unique<WatchHandle>(this, watcher);
  Tell(lock);
  return handle;
}

void MemoryStore::Note(StoreEvent event) {
  for (const auto& watcher : watchers_) {
    if (event.entry.key.starts_with(watcher->prefix)) watcher->pending.push_back(event);
  }
  history_.push_back(std::move(event));
  if (history_.size() > options_.max_history) history_.pop_front();
}

// One thread calls at a time, so that each watch sees changes in order. Whoever makes a change
// meanwhile, perhaps inside of such a call, leaves it to that thread.
void MemoryStore::Tell(Lock& lock) {
  if (teller_ != std::thread::id()) return;
  const auto has_news = [](const auto& watcher) { return !watcher->pending.empty(); };
  for (auto next = std::find_if(watchers_.begin(), watchers_.end(), has_news);
       next != watchers_.end(); next = std::find_if(watchers_.begin(), watchers_.end(), has_news)) {
    const std::shared_ptr<Watcher> watcher = *next;
    const std::vector<StoreEvent> events(watcher->pending.begin(), watcher->pending.end());
    watcher->pending.clear();
    teller_ = std::this_thread::get_id();
    being_told_ = watcher;
    lock.unlock();
    watcher->on_events(events);
    lock.lock();
    being_told_ = nullptr;
    teller_ = std::thread::id();
    told_.notify_all();
  }
}

void MemoryStore::EndWatch(const std::shared_ptr<Watcher>& watcher) {
  Lock lock(mutex_);
  watchers_.remove(watcher);
  watcher->pending.clear();
  if (teller_ == std::this_thread::get_id()) return;
  told_.wait(lock, [&] { return being_told_ != watcher; });
}

}  // namespace tutti::net
