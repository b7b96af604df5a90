#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tutti::net {

// Names a lease; 0 is none.
using LeaseId = int64_t;

// A key and what is known of it.
struct StoreEntry {
  std::string key;
  std::string value;
  int64_t created = 0;  // revision at which the key came into being
  int64_t version = 0;  // revision of its last change; never the same again, so it can be compared
  LeaseId lease = 0;    // with which it goes

  bool operator==(const StoreEntry&) const = default;
};

// A change. Of a deletion the entry has the key, and the revision of the deletion as its version.
struct StoreEvent {
  enum class Kind : uint8_t { kPut, kDelete };
  Kind kind = Kind::kPut;
  StoreEntry entry;

  bool operator==(const StoreEvent&) const = default;
};

// A small key-value store that the tasks of a cluster share, in the shape of etcd's, so that a real
// etcd can stand behind it. Every change gives the whole store a new revision, greater than all
// before; what goes with one lease may go in one change. What a task wrote under a lease goes when
// the task no longer keeps the lease alive.
//
// The revision at which a task took a role (the answer of its Put) serves as a fencing token: it is
// greater than that of whoever had the role before, and others refuse what comes with a smaller
// one.
//
// A call may take a round trip to where the store lives; UNAVAILABLE where that cannot be reached,
// and then nobody knows whether a change was made. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;

  struct PutOptions {
    LeaseId lease = 0;
    // Only if the key's version is this one; 0: only if there is no such key.
    std::optional<int64_t> if_version = {};
    // Only if another key has this version, 0 as above: a task that lost its place, which that key
    // stands for, can write nothing any more.
    struct Guard {
      std::string key;
      int64_t version = 0;
    };
    std::optional<Guard> guard = {};
  };
  // Sets a key, and gives the revision that this made. FAILED_PRECONDITION where `if_version` or
  // `guard` does not hold, NOT_FOUND where there is no such lease.
  virtual absl::StatusOr<int64_t> Put(const std::string& key, std::string value,
                                      const PutOptions& options) = 0;
  absl::StatusOr<int64_t> Put(const std::string& key, std::string value) {
    return Put(key, std::move(value), {});
  }
  // NOT_FOUND where there is no such key; FAILED_PRECONDITION as above.
  virtual absl::StatusOr<int64_t> Delete(const std::string& key,
                                         std::optional<int64_t> if_version = std::nullopt) = 0;

  struct Range {
    std::vector<StoreEntry> entries;  // by key
    int64_t revision = 0;             // of the store when it was read
  };
  // All keys that begin with `prefix`; the empty one stands for all.
  virtual absl::StatusOr<Range> List(std::string_view prefix) = 0;
  // One key; none if it is not there.
  virtual absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) = 0;

  // A lease that lasts `seconds` from each KeepAlive; a store may round them up.
  virtual absl::StatusOr<LeaseId> Grant(double seconds) = 0;
  // NOT_FOUND where it is over: what was written under it is gone.
  virtual absl::Status KeepAlive(LeaseId lease) = 0;
  // Ends it now, and deletes its keys.
  virtual absl::Status Revoke(LeaseId lease) = 0;

  // Ends the watch when it is destroyed: no call is made after that. May be destroyed in its own
  // call.
  class Watch {
   public:
    virtual ~Watch() = default;
  };
  // Called with changes in the order of their revisions, each once, by one thread at a time.
  using OnEvents = std::function<void(std::span<const StoreEvent> events)>;
  // Called at most once, after the last change: the watch cannot go on. UNAVAILABLE: the store is
  // out of reach.
  using OnEnd = std::function<void(const absl::Status& why)>;
  // Tells of all changes of keys with that prefix from `from` on, including those already made; so
  // that a List and a Watch from its revision + 1 miss nothing. OUT_OF_RANGE, as an answer or to
  // `on_end`, where `from` is so old that the changes since are no longer known: list again.
  virtual absl::StatusOr<std::unique_ptr<Watch>> StartWatch(std::string prefix, int64_t from,
                                                            OnEvents on_events, OnEnd on_end) = 0;
  absl::StatusOr<std::unique_ptr<Watch>> StartWatch(std::string prefix, int64_t from,
                                                    OnEvents on_events) {
    return StartWatch(std::move(prefix), from, std::move(on_events), nullptr);
  }
};

}  // namespace tutti::net
