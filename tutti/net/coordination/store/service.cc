// A watch of another process is a chain of requests: "changes of this prefix from this revision
// on". Each is answered when there are some, or with none when its time is over, and the next
// begins behind the last change that came. So it needs nothing of what carries it but requests and
// answers, and a process that falls behind loses nothing that the store still remembers.
#include "tutti/net/coordination/store/service.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::net {
namespace {

constexpr double kLongestWait = 60;  // seconds

StoreReply ReplyOf(std::vector<StoreEntry> entries, int64_t revision) {
  StoreReply reply{.revision = revision};
  for (StoreEntry& entry : entries) {
    reply.events.push_back({StoreEvent::Kind::kPut, std::move(entry)});
  }
  return reply;
}

absl::Status Stopped() { return Unavailable("the coordinator has ended"); }

absl::StatusOr<std::string> Encoded(const absl::StatusOr<StoreReply>& reply) {
  if (!reply.ok()) return reply.status();
  return Encode(*reply);
}

}  // namespace

StoreService::StoreService(MemoryStore* store)
    : store_(store),
      thread_(ValueOrThrow(StartThread("the thread of a job's store", [this] { Run(); }))) {}

StoreService::~StoreService() { Stop(); }

void StoreService::Stop() {
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const auto& [id, waiting] : waiting_) ids.push_back(id);
    changed_.notify_all();
  }
  for (const uint64_t id : ids) EndWait(id, Stopped());
  if (thread_.joinable()) thread_.join();
}

void StoreService::Handle(const std::string& caller, std::string_view request, Done done) {
  bool stopped = false;
  {
    const std::lock_guard lock(mutex_);
    stopped = stopped_;
  }
  if (stopped) {
    done(Stopped());
    return;
  }
  const absl::StatusOr<StoreRequest> decoded = DecodeStoreRequest(request);
  if (!decoded.ok()) {
    done(decoded.status());
  } else if (decoded->op == StoreOp::kAwait) {
    Await(caller, *decoded, std::move(done));
  } else {
    done(Encoded(Answer(caller, *decoded)));
  }
}

absl::StatusOr<StoreReply> StoreService::Answer(const std::string& caller,
                                                const StoreRequest& request) {
  switch (request.op) {
    case StoreOp::kPut: {
      TUTTI_ASSIGN_OR_RETURN(const int64_t revision,
                             store_->Put(request.key, request.value, request.options));
      return StoreReply{.revision = revision};
    }
    case StoreOp::kDelete: {
      TUTTI_ASSIGN_OR_RETURN(const int64_t revision,
                             store_->Delete(request.key, request.options.if_version));
      return StoreReply{.revision = revision};
    }
    case StoreOp::kList: {
      TUTTI_ASSIGN_OR_RETURN(Store::Range range, store_->List(request.key));
      return ReplyOf(std::move(range.entries), range.revision);
    }
    case StoreOp::kGet: {
      TUTTI_ASSIGN_OR_RETURN(std::optional<StoreEntry> entry, store_->Get(request.key));
      std::vector<StoreEntry> entries;
      if (entry) entries.push_back(*std::move(entry));
      return ReplyOf(std::move(entries), 0);
    }
    case StoreOp::kGrant: {
      TUTTI_ASSIGN_OR_RETURN(const LeaseId lease, store_->Grant(request.seconds));
      const std::lock_guard lock(mutex_);
      leases_[caller].insert(lease);
      changed_.notify_all();  // it may be the first to end
      return StoreReply{.lease = lease};
    }
    case StoreOp::kKeepAlive: {
      TUTTI_RETURN_IF_ERROR(store_->KeepAlive(request.options.lease));
      // A lease that several keep does not end with the one who made it.
      const std::lock_guard lock(mutex_);
      for (auto& [owner, leases] : leases_) {
        if (owner != caller) leases.erase(request.options.lease);
      }
      return StoreReply{};
    }
    case StoreOp::kRevoke: {
      {
        const std::lock_guard lock(mutex_);
        if (const auto found = leases_.find(caller); found != leases_.end()) {
          found->second.erase(request.options.lease);
        }
      }
      TUTTI_RETURN_IF_ERROR(store_->Revoke(request.options.lease));
      return StoreReply{};
    }
    case StoreOp::kAwait:
      break;
  }
  return Internal("the store cannot handle this request");
}

void StoreService::Await(const std::string& caller, const StoreRequest& request, Done done) {
  uint64_t id = 0;
  {
    std::unique_lock lock(mutex_);
    const auto same = [&](const auto& entry) { return entry.second.caller == caller; };
    absl::Status refused;
    if (stopped_) {
      refused = Stopped();
    } else if (size_t(std::count_if(waiting_.begin(), waiting_.end(), same)) >= kMostWaiting) {
      refused = ResourceExhausted("{} waits for changes {} times already", caller, kMostWaiting);
    }
    if (!refused.ok()) {
      lock.unlock();
      done(refused);
      return;
    }
    id = next_++;
    const double seconds = std::clamp(request.seconds, 0.0, kLongestWait);
    waiting_[id] = {caller, std::move(done), NowNanos() + int64_t(seconds * 1e9), nullptr};
  }
  absl::StatusOr<std::unique_ptr<Store::Watch>> watch =
      store_->StartWatch(request.key, request.from, [this, id](std::span<const StoreEvent> events) {
        StoreReply reply;
        reply.events.assign(events.begin(), events.end());
        EndWait(id, std::move(reply));
      });
  if (!watch.ok()) return EndWait(id, watch.status());
  if (request.seconds <= 0) return EndWait(id, StoreReply{});
  const std::lock_guard lock(mutex_);
  if (const auto found = waiting_.find(id); found != waiting_.end()) {
    found->second.watch = *std::move(watch);
    changed_.notify_all();
  }
  // Where it was answered meanwhile the watch goes here, behind the lock.
}

void StoreService::EndWait(uint64_t id, absl::StatusOr<StoreReply> reply) {
  Waiting ended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) return;
    ended = std::move(found->second);
    waiting_.erase(found);
  }
  ended.watch.reset();  // without the lock: it may wait for a call that takes it
  ended.done(Encoded(reply));
}

void StoreService::CallerLost(const std::string& caller) {
  std::set<LeaseId> leases;
  std::vector<uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = leases_.find(caller); found != leases_.end()) {
      leases = std::move(found->second);
      leases_.erase(found);
    }
    for (const auto& [id, waiting] : waiting_) {
      if (waiting.caller == caller) ids.push_back(id);
    }
  }
  for (const uint64_t id : ids) EndWait(id, Unavailable("{} is lost", caller));
  for (const LeaseId lease : leases) (void)store_->Revoke(lease);  // it may be over already
}

void StoreService::Run() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    lock.unlock();
    int64_t next = store_->Expire();
    lock.lock();
    const int64_t now = NowNanos();
    std::vector<uint64_t> over;
    for (const auto& [id, waiting] : waiting_) {
      if (waiting.deadline <= now) {
        over.push_back(id);
      } else if (next == 0 || waiting.deadline < next) {
        next = waiting.deadline;
      }
    }
    if (!over.empty()) {
      lock.unlock();
      for (const uint64_t id : over) EndWait(id, StoreReply{});
      lock.lock();
      continue;
    }
    if (stopped_) break;
    if (next == 0) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(std::max<int64_t>(0, next - now)));
    }
  }
}

}  // namespace tutti::net
