#include "tutti/cluster/coordination.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/cluster/grpc/etcd_store.h"
#include "tutti/net/coordination/store/remote_store.h"

namespace tutti {
namespace {

// The store of the task that is the coordinator.
struct Hosted {
  net::MemoryStore store;
  net::StoreService service{&store};
};

constexpr auto kLook = std::chrono::milliseconds(100);  // for a stop

bool IsEtcd(std::string_view coordinator) { return coordinator.starts_with(kEtcdScheme); }

}  // namespace

std::string CallerOf(const net::TaskIdentity& process) {
  return fmt::format("{} (incarnation {})", process.task, process.incarnation);
}

absl::StatusOr<std::unique_ptr<Coordination>> Coordination::Make(Options options) {
  const std::string& name = options.coordinator;
  if (IsEtcd(name)) {
    TUTTI_RETURN_IF_ERROR(ParseEtcdUrl(name).status());
  } else if (std::find(options.tasks.begin(), options.tasks.end(), name) == options.tasks.end()) {
    return InvalidArgument(
        "coordinator \"{}\": the cluster has no such task; expected one such as {}, "
        "etcd://host:2379,.../job, or none",
        name, options.tasks.empty() ? "/job:chief/task:0" : options.tasks.front());
  }
  const bool own = name == options.peers->self().task;
  std::unique_ptr<Coordination> made(new Coordination(std::move(options)));
  if (own) {
    const auto hosted = std::make_shared<Hosted>();
    made->service_ = {hosted, &hosted->service};
  }
  return made;
}

Coordination::~Coordination() {
  Leave();
  if (thread_.joinable()) thread_.join();
  joined_.reset();
  if (service_ != nullptr) service_->Stop();
}

void Coordination::Start() {
  thread_ = ValueOrThrow(StartThread("the thread that joins the job", [this] { Join(); }));
}

absl::StatusOr<std::shared_ptr<net::Store>> Coordination::OpenStore() {
  if (IsEtcd(options_.coordinator)) {
    TUTTI_ASSIGN_OR_RETURN(EtcdOptions etcd, ParseEtcdUrl(options_.coordinator));
    root_ = etcd.job + "/";
    etcd.stopped = [stopping = stopping_] { return stopping->load(); };
    // An etcd that is not there, or does not want us, is told within the time of the start.
    EtcdOptions first = etcd;
    first.patience_seconds = options_.start_seconds;
    TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<net::Store> probe, OpenEtcd(std::move(first)));
    TUTTI_RETURN_IF_ERROR(probe->Get(root_).status());
    return OpenEtcd(std::move(etcd));
  }
  net::RemoteStore::Send send;
  if (service_ != nullptr) {
    send = [service = service_, caller = CallerOf(options_.peers->self())](
               std::string request, net::StoreService::Done done) {
      service->Handle(caller, request, std::move(done));
    };
  } else {
    send = [peers = options_.peers, coordinator = options_.coordinator,
            patience = int64_t(options_.start_seconds * 1e9)](std::string request,
                                                              net::StoreService::Done done) {
      peers->Get(coordinator, patience,
                 [request = std::move(request), done = std::move(done)](
                     const absl::StatusOr<std::shared_ptr<Peer>>& peer) mutable {
                   if (!peer.ok()) {
                     done(peer.status());
                     return;
                   }
                   WireMessage message;
                   message.fields = std::move(request);
                   (*peer)->Call(ControlMethod::kStore, std::move(message), std::move(done));
                 });
    };
  }
  return std::make_shared<net::RemoteStore>(std::move(send));
}

absl::StatusOr<std::shared_ptr<net::Membership>> Coordination::TakePlace() {
  net::MembershipOptions member;
  TUTTI_ASSIGN_OR_RETURN(member.store, OpenStore());
  member.root = root_;
  member.task = options_.peers->self().task;
  member.incarnation = options_.peers->self().incarnation;
  member.place = options_.place;
  member.tasks = options_.tasks;
  member.fingerprint = options_.fingerprint;
  member.stopped = [stopping = stopping_] { return stopping->load(); };
  // That the task with the store is gone is told by its link, with the reason.
  member.lost = [this](const absl::Status& why) {
    if (IsEtcd(options_.coordinator) || absl::IsAborted(why)) Over(why);
  };
  member.gone = [this](const net::Departure& departure) { OnGone(departure); };
  TUTTI_ASSIGN_OR_RETURN(std::shared_ptr<net::Membership> joined,
                         net::Membership::Join(std::move(member)));
  return joined;
}

void Coordination::Join() {
  const bool etcd = IsEtcd(options_.coordinator);
  absl::StatusOr<std::shared_ptr<net::Membership>> joined = nullptr;
  try {
    joined = TakePlace();
  } catch (...) {
    joined = StatusFromCurrentException();
  }
  const absl::Status status = joined.status();
  bool leave = false;
  {
    const std::lock_guard lock(mutex_);
    if (joined.ok() && !store_lost_.ok()) (*joined)->Abandon(store_lost_);
    leave = *stopping_;
    joined_ = leave && joined.ok()
                  ? absl::StatusOr<std::shared_ptr<net::Membership>>(Cancelled("the task ends"))
                  : joined;
    changed_.notify_all();
  }
  if (!status.ok() && (etcd || !absl::IsUnavailable(status))) Over(status);
}

void Coordination::OnGone(const net::Departure& departure) {
  const auto& [task, incarnation, how, why] = departure;
  if (how == net::Departure::How::kLost) {
    options_.peers->Fence(
        {task, incarnation},
        Aborted("{} (incarnation {}) has lost its place in the job, and is fenced "
                "off",
                task, incarnation));
  }
  if (how == net::Departure::How::kFailed) {
    // What a task says of itself may name it already.
    const bool named = MessageOf(why).find(task) != std::string_view::npos;
    Over(named ? why : WithPrefix(why, fmt::format("{} failed: ", task)));
  } else if (how == net::Departure::How::kLeft && task == options_.leader) {
    Over(absl::OkStatus());
  }
}

void Coordination::PeerLost(const net::TaskIdentity& process, const absl::Status& why) {
  if (!options_.reports_lost || absl::IsCancelled(why)) return;
  if (std::find(options_.tasks.begin(), options_.tasks.end(), process.task) ==
      options_.tasks.end()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (joined_ && joined_->ok()) (**joined_)->ReportLost(process.task, process.incarnation);
}

void Coordination::Over(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (*stopping_ || std::exchange(over_, true)) return;
  }
  options_.over(why);
}

void Coordination::Leave() {
  std::shared_ptr<net::Membership> leaves;
  {
    const std::lock_guard lock(mutex_);
    *stopping_ = true;
    changed_.notify_all();
    if (joined_ && joined_->ok()) {
      leaves = **joined_;
      joined_ = absl::Status(Cancelled("the task ends"));
    }
  }
  if (leaves != nullptr) leaves->Leave();
}

absl::Status Coordination::Failure() {
  const std::lock_guard lock(mutex_);
  if (!joined_ || !joined_->ok()) return absl::OkStatus();
  const auto failure = (**joined_)->KnownFailure();
  return failure ? failure->why : absl::OkStatus();
}

void Coordination::CoordinatorLost(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  store_lost_ = why;
  if (joined_ && joined_->ok()) (**joined_)->Abandon(why);
}

absl::StatusOr<std::shared_ptr<net::Membership>> Coordination::membership() {
  std::unique_lock lock(mutex_);
  const auto known = [this] { return joined_.has_value() || *stopping_; };
  while (!changed_.wait_for(lock, kLook, known)) {
    if (options_.stopped != nullptr && options_.stopped()) {
      return Cancelled("stopped while {} was waited for", options_.coordinator);
    }
  }
  if (!joined_) return Cancelled("the task ends");
  return *joined_;
}

}  // namespace tutti
