#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "tutti/net/coordination/store/codec.h"
#include "tutti/net/coordination/store/memory_store.h"

namespace tutti::net {

// Serves a store to other processes, whatever brings their messages (codec.h). The leases of
// a process that is lost end at once, but for those that others keep alive, too. Has a thread,
// which ends leases in time. Thread-safe.
class StoreService {
 public:
  using Done = std::function<void(absl::StatusOr<std::string> reply)>;

  // `store` outlives it. Leases that were not granted through the service end only when something
  // else happens.
  explicit StoreService(MemoryStore* store);
  ~StoreService();  // stops it

  // Answers a request of the process `caller`: once, on any thread, perhaps before this returns.
  void Handle(const std::string& caller, std::string_view request, Done done);
  // That process will not call again.
  void CallerLost(const std::string& caller);
  // Answers all that wait, and every later request, with UNAVAILABLE.
  void Stop();

 private:
  static constexpr size_t kMostWaiting = 1000;  // requests of one process
  struct Waiting {
    std::string caller;
    Done done;
    int64_t deadline = 0;
    std::unique_ptr<Store::Watch> watch;
  };

  absl::StatusOr<StoreReply> Answer(const std::string& caller, const StoreRequest& request);
  void Await(const std::string& caller, const StoreRequest& request, Done done);
  // Answers a request that waits, unless it was answered.
  void EndWait(uint64_t id, absl::StatusOr<StoreReply> reply);
  void Run();

  MemoryStore* const store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  uint64_t next_ = 1;
  std::map<uint64_t, Waiting> waiting_;
  std::map<std::string, std::set<LeaseId>> leases_;  // by caller
  std::thread thread_;
};

}  // namespace tutti::net
