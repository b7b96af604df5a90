#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/net/coordination/store/store.h"

namespace tutti::net {

// A Store in the memory of this process, without threads: leases that are over end in the next call
// of any kind, or of Expire, which the owner makes at the time that it names. Watches are called by
// the thread that made the change (or by one that is making calls already), after it is made.
class MemoryStore final : public Store {
 public:
  struct Options {
    std::function<int64_t()> now = NowNanos;  // in nanoseconds; never goes back
    size_t max_key_bytes = 4096;
    size_t max_value_bytes = size_t{1} << 20;
    size_t max_total_bytes = size_t{256} << 20;  // of keys and values
    size_t max_leases = 100'000;
    size_t max_history = 10'000;  // changes that a watch can look back to
  };
  MemoryStore() : MemoryStore(Options{}) {}
  explicit MemoryStore(Options options) : options_(std::move(options)) {}
  ~MemoryStore() override;  // the watches go before

  using Store::Put;
  absl::StatusOr<int64_t> Put(const std::string& key, std::string value,
                              const PutOptions& options) override;
  absl::StatusOr<int64_t> Delete(const std::string& key,
                                 std::optional<int64_t> if_version) override;
  absl::StatusOr<Range> List(std::string_view prefix) override;
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<LeaseId> Grant(double seconds) override;
  absl::Status KeepAlive(LeaseId lease) override;
  absl::Status Revoke(LeaseId lease) override;
  using Store::StartWatch;
  absl::StatusOr<std::unique_ptr<Watch>> StartWatch(std::string prefix, int64_t from,
                                                    OnEvents on_events, OnEnd on_end) override;

  // Ends the leases whose time is over. Gives the time at which the next one would end; 0: none.
  int64_t Expire();
  int64_t revision() const;

 private:
  struct Lease {
    int64_t nanos = 0;
    int64_t end = 0;
    std::set<std::string> keys;
  };
  struct Watcher {
    std::string prefix;
    OnEvents on_events;
    std::deque<StoreEvent> pending;
  };
  class WatchHandle;
  using Lock = std::unique_lock<std::mutex>;

  // All with the lock held.
  absl::Status CheckVersion(const std::string& key, std::optional<int64_t> if_version) const;
  void Erase(std::map<std::string, StoreEntry>::iterator found);
  void EndLease(std::map<LeaseId, Lease>::iterator found);
  void ExpireDue();
  void Note(StoreEvent event);
  // Calls the watches, without the lock.
  void Tell(Lock& lock);
  void EndWatch(const std::shared_ptr<Watcher>& watcher);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable told_;
  int64_t revision_ = 0;
  std::map<std::string, StoreEntry> entries_;
  size_t bytes_ = 0;
  std::map<LeaseId, Lease> leases_;
  std::set<std::pair<int64_t, LeaseId>> ends_;  // of the leases
  LeaseId last_lease_ = 0;
  std::deque<StoreEvent> history_;
  std::list<std::shared_ptr<Watcher>> watchers_;
  std::thread::id teller_;                     // the thread that calls watches now; none: default
  std::shared_ptr<const Watcher> being_told_;  // whose call that is
};

}  // namespace tutti::net
