#include "tutti/net/coordination/store/remote_store.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::net {
namespace {

constexpr double kAwaitSeconds = 30;  // that one request of a watch waits for a change

}  // namespace

// The thread that calls watches. Answers may come after the store is gone: they find it stopped.
struct RemoteStore::Teller {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool stopped = false;
  std::thread thread;

  void Post(std::function<void()> job) {
    const std::lock_guard lock(mutex);
    if (stopped) return;
    jobs.push_back(std::move(job));
    changed.notify_one();
  }

  void Run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopped || !jobs.empty(); });
      if (stopped) return;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
  }
};

// A watch: one request after the other, each from behind the last change that came.
class RemoteStore::Chain final : public std::enable_shared_from_this<Chain> {
 public:
  Chain(std::shared_ptr<const Send> send, std::shared_ptr<Teller> teller, std::string prefix,
        int64_t from, OnEvents on_events, OnEnd on_end)
      : send_(std::move(send)),
        teller_(std::move(teller)),
        prefix_(std::move(prefix)),
        from_(from),
        on_events_(std::move(on_events)),
        on_end_(std::move(on_end)) {}

  // On the teller's thread, or before anything else.
  void Ask() {
    const StoreRequest request{
        .op = StoreOp::kAwait, .key = prefix_, .seconds = kAwaitSeconds, .from = from_};
    (*send_)(Encode(request), [self = shared_from_this()](absl::StatusOr<std::string> bytes) {
      Teller& teller = *self->teller_;
      teller.Post([self, bytes = std::move(bytes)] {
        self->Tell(bytes.ok() ? DecodeStoreReply(*bytes)
                              : absl::StatusOr<StoreReply>(bytes.status()));
      });
    });
  }

  void Tell(absl::StatusOr<StoreReply> reply) {
    if (!Enter()) return;
    if (!reply.ok()) {
      if (on_end_ != nullptr) on_end_(reply.status());
    } else if (!reply->events.empty()) {
      from_ = reply->events.back().entry.version + 1;
      on_events_(reply->events);
    }
    if (Leave() && reply.ok()) Ask();
  }

  void End() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    if (std::this_thread::get_id() == teller_->thread.get_id()) return;
    left_.wait(lock, [this] { return !inside_; });
  }

 private:
  bool Enter() {
    const std::lock_guard lock(mutex_);
    inside_ = !ended_;
    return inside_;
  }
  bool Leave() {
    const std::lock_guard lock(mutex_);
    inside_ = false;
    left_.notify_all();
    return !ended_;
  }

  const std::shared_ptr<const Send> send_;
  const std::shared_ptr<Teller> teller_;
  const std::string prefix_;
  int64_t from_;
  const OnEvents on_events_;
  const OnEnd on_end_;
  std::mutex mutex_;
  std::condition_variable left_;
  bool ended_ = false, inside_ = false;  // a call
};

RemoteStore::RemoteStore(Send send)
    : send_(std::make_shared<const Send>(std::move(send))), teller_(std::make_shared<Teller>()) {
  teller_->thread = ValueOrThrow(StartThread("the thread that tells the changes of a store",
                                             [teller = teller_.get()] { teller->Run(); }));
}

RemoteStore::~RemoteStore() {
  {
    const std::lock_guard lock(teller_->mutex);
    teller_->stopped = true;
    teller_->changed.notify_all();
  }
  teller_->thread.join();
  teller_->jobs.clear();
}

absl::StatusOr<StoreReply> RemoteStore::Call(const StoreRequest& request) {
  Awaited<absl::StatusOr<std::string>> answer;
  (*send_)(Encode(request),
           [&answer](absl::StatusOr<std::string> bytes) { answer.Set(std::move(bytes)); });
  TUTTI_ASSIGN_OR_RETURN(const std::string bytes, answer.Wait());
  return DecodeStoreReply(bytes);
}

absl::StatusOr<int64_t> RemoteStore::Put(const std::string& key, std::string value,
                                         const PutOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(
      const StoreReply reply,
      Call({.op = StoreOp::kPut, .key = key, .value = std::move(value), .options = options}));
  return reply.revision;
}

absl::StatusOr<int64_t> RemoteStore::Delete(const std::string& key,
                                            std::optional<int64_t> if_version) {
  TUTTI_ASSIGN_OR_RETURN(
      const StoreReply reply,
      Call({.op = StoreOp::kDelete, .key = key, .options = {.if_version = if_version}}));
  return reply.revision;
}

absl::StatusOr<Store::Range> RemoteStore::List(std::string_view prefix) {
  TUTTI_ASSIGN_OR_RETURN(StoreReply reply,
                         Call({.op = StoreOp::kList, .key = std::string(prefix)}));
  Range range{.revision = reply.revision};
  for (StoreEvent& event : reply.events) range.entries.push_back(std::move(event.entry));
  return range;
}

absl::StatusOr<std::optional<StoreEntry>> RemoteStore::Get(const std::string& key) {
  TUTTI_ASSIGN_OR_RETURN(StoreReply reply, Call({.op = StoreOp::kGet, .key = key}));
  if (reply.events.empty()) return std::nullopt;
  return std::move(reply.events.front().entry);
}

absl::StatusOr<LeaseId> RemoteStore::Grant(double seconds) {
  TUTTI_ASSIGN_OR_RETURN(const StoreReply reply, Call({.op = StoreOp::kGrant, .seconds = seconds}));
  return reply.lease;
}

absl::Status RemoteStore::KeepAlive(LeaseId lease) {
  return Call({.op = StoreOp::kKeepAlive, .options = {.lease = lease}}).status();
}

absl::Status RemoteStore::Revoke(LeaseId lease) {
  return Call({.op = StoreOp::kRevoke, .options = {.lease = lease}}).status();
}

absl::StatusOr<std::unique_ptr<Store::Watch>> RemoteStore::StartWatch(std::string prefix,
                                                                      int64_t from,
                                                                      OnEvents on_events,
                                                                      OnEnd on_end) {
  class Handle final : public Watch {
   public:
    explicit Handle(std::shared_ptr<Chain> chain) : chain_(std::move(chain)) {}
    ~Handle() override { chain_->End(); }

   private:
    const std::shared_ptr<Chain> chain_;
  };
  // What is known already, without waiting: so that a revision that is too old is told here.
  TUTTI_ASSIGN_OR_RETURN(StoreReply known,
                         Call({.op = StoreOp::kAwait, .key = prefix, .from = from}));
  auto chain = std::make_shared<Chain>(send_, teller_, std::move(prefix), from,
                                       std::move(on_events), std::move(on_end));
  teller_->Post([chain, known = std::move(known)] { chain->Tell(known); });
  return std::make_unique<Handle>(std::move(chain));
}

}  // namespace tutti::net
