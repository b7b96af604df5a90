#include "tutti/cluster/coordination.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/cluster/grpc/etcd_store.h"
#include "tutti/net/coordination/store/remote_store.h"

namespace tutti {
namespace {

// The store of the task that is the coordinator.
struct Hosted {
  net::MemoryStore store;
  net::StoreService service{&store};
};

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
        "coordinator \"{}\": the cluster has no such task; expected one such as {}, or "
        "etcd://host:2379,.../job",
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
  thread_ = std::thread([this] { Join(); });
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

void Coordination::Join() {
  const bool etcd = IsEtcd(options_.coordinator);
  absl::StatusOr<std::shared_ptr<net::Membership>> joined = [&] {
    auto store = OpenStore();
    if (!store.ok()) return absl::StatusOr<std::shared_ptr<net::Membership>>(store.status());
    net::MembershipOptions member;
    member.store = *std::move(store);
    member.root = root_;
    member.task = options_.peers->self().task;
    member.incarnation = options_.peers->self().incarnation;
    member.place = options_.place;
    member.tasks = options_.tasks;
    member.fingerprint = options_.fingerprint;
    member.stopped = [stopping = stopping_] { return stopping->load(); };
    // That the task with the store is gone is told by its link, with the reason.
    member.lost = [this, etcd](const absl::Status& why) {
      if (etcd || absl::IsAborted(why)) Over(why);
    };
    member.gone = [this, etcd](const std::string& task, bool in_good_order) {
      if (etcd && in_good_order && task == options_.leader) Over(absl::OkStatus());
    };
    auto made = net::Membership::Join(std::move(member));
    if (!made.ok()) return absl::StatusOr<std::shared_ptr<net::Membership>>(made.status());
    return absl::StatusOr<std::shared_ptr<net::Membership>>(std::move(*made));
  }();
  const absl::Status status = joined.status();
  bool leave = false;
  {
    const std::lock_guard lock(mutex_);
    if (joined.ok() && store_lost_) (*joined)->Abandon();
    leave = *stopping_;
    joined_ = leave && joined.ok()
                  ? absl::StatusOr<std::shared_ptr<net::Membership>>(Cancelled("the task ends"))
                  : joined;
    changed_.notify_all();
  }
  if (!status.ok() && (etcd || !absl::IsUnavailable(status))) Over(status);
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
  // The membership tells the others when the last who holds it lets go.
}

void Coordination::CoordinatorLost() {
  const std::lock_guard lock(mutex_);
  store_lost_ = true;
  if (joined_ && joined_->ok()) (**joined_)->Abandon();
}

absl::StatusOr<std::shared_ptr<net::Membership>> Coordination::membership() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return joined_.has_value() || *stopping_; });
  if (!joined_) return Cancelled("the task ends");
  return *joined_;
}

}  // namespace tutti
