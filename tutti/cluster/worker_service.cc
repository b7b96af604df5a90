#include "tutti/cluster/worker_service.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/cluster/cluster_rendezvous.h"
#include "tutti/net/wire.h"

namespace tutti {
WorkerService::WorkerService(std::shared_ptr<LocalWorker> worker) : worker_(std::move(worker)) {}
WorkerService::~WorkerService() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return open_runs_ == 0; });
}

void WorkerService::AwaitAnswers(std::chrono::nanoseconds at_most) {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, at_most, [this] { return open_runs_ == 0; });
}

std::shared_ptr<WorkerService::Account> WorkerService::AccountOf(
    const std::shared_ptr<Peer>& master) {
  std::lock_guard lock(mutex_);
  if (const auto it = accounts_.find(master.get()); it != accounts_.end()) return it->second;
  auto account = std::make_shared<Account>();
  account->master = master;
  account->lost = master->status();
  // PeerLost may have come already; nobody would close an account that is opened after it.
  if (account->lost.ok()) accounts_.emplace(master.get(), account);
  return account;
}

// A request comes from another process and may name anything.
absl::Status WorkerService::CheckRun(Account& account, RunRequest& request) {
  std::lock_guard lock(mutex_);
  if (!account.lost.ok()) return account.lost;
  const auto registered = account.handles.find(request.handle);
  if (registered == account.handles.end() || registered->second.session != request.id.session) {
    return NotFound("step {} runs a plan that {} has not registered (handle {})", request.id.step,
                    account.master->description(), request.handle);
  }
  const std::vector<ValueType>& feeds = registered->second.feeds;
  if (feeds.size() != request.feeds.size()) {
    return InvalidArgument("step {} comes with {} feeds; its plan takes {}", request.id.step,
                           request.feeds.size(), feeds.size());
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    const Tensor& feed = request.feeds[i];
    if (feed.dtype() == feeds[i].dtype && feed.shape() == feeds[i].shape) continue;
    return InvalidArgument("step {}: feed {} is {} {}; its plan takes {} {}", request.id.step, i,
                           NameOf(feed.dtype()), feed.shape().ToString(), NameOf(feeds[i].dtype),
                           feeds[i].shape.ToString());
  }
  if (!account.running.try_emplace(request.id, NowNanos()).second) {
    return AlreadyExists("step {} runs already", request.id.step);
  }
  request.caller_waits = registered->second.brief;
  ++open_runs_;
  return absl::OkStatus();
}

void WorkerService::Run(const std::shared_ptr<Peer>& master, uint64_t call, PeerMessage message) {
  requests_->fetch_add(1, std::memory_order_relaxed);
  master->Taken(message.tensor_bytes());
  const std::shared_ptr<Account> account = AccountOf(master);
  absl::StatusOr<RunRequest> request = DecodeRun(message.fields, message.tensors);
  absl::Status status = request.ok() ? CheckRun(*account, *request) : request.status();
  if (!status.ok()) {
    master->AnswerError(call, std::move(status));
    return;
  }
  RunNow(account, call, *std::move(request));
}

void WorkerService::RunNow(const std::shared_ptr<Account>& account, uint64_t call,
                           RunRequest request) {
  const StepId id = request.id;
  worker_->Run(std::move(request), [this, account, call, id](RunResponse&& response) {
    bool lost = false;
    {
      std::lock_guard lock(mutex_);
      account->running.erase(id);
      lost = !account->lost.ok();
    }
    if (response.trace != nullptr) response.trace->answer_nanos = NowNanos();
    account->master->Answer(call, response);
    if (lost) worker_->CleanUp(id);
    std::lock_guard lock(mutex_);
    if (--open_runs_ == 0) ended_.notify_all();
  });
}

void WorkerService::Value(const std::shared_ptr<Peer>& from, PeerMessage message) {
  // As Peer::SendValue has counted them: kind and call of the message, too.
  const uint64_t bytes = message.header_bytes + message.tensor_bytes();
  absl::StatusOr<SentValue> value = DecodeValue(
      message.fields, message.tensors,
      [this](std::string_view key) -> MemoryPool& { return worker_->PoolOf(DestinationOf(key)); });
  if (!value.ok()) {
    from->Close(WithPrefix(value.status(), from->description() + " sent "));
    return;
  }
  message.tensors.clear();
  std::shared_ptr<Rendezvous> rendezvous = worker_->rendezvous().Find(value->id);
  if (rendezvous == nullptr && worker_->HasSession(value->id.session)) {
    rendezvous = worker_->rendezvous().FindOrMakeForValue(value->id);
  }
  // Every rendezvous of a task that has this service is one of a cluster.
  auto* const cluster = static_cast<ClusterRendezvous*>(rendezvous.get());
  if (cluster == nullptr) {
    from->Taken(bytes);
    refused_values_.fetch_add(1, std::memory_order_relaxed);
  } else if (!cluster->Deliver(TransferKeyView(value->key), std::move(value->value), from, bytes)
                  .ok()) {
    refused_values_.fetch_add(1, std::memory_order_relaxed);
  }
}

void WorkerService::Register(const std::shared_ptr<Peer>& master, std::string fields,
                             std::vector<Tensor> tensors, ControlDone done) {
  const std::shared_ptr<Account> account = AccountOf(master);
  threads_.Post([this, account, fields = std::move(fields), tensors = std::move(tensors),
                 done = std::move(done)] {
    absl::StatusOr<RegisterRequest> request;
    try {
      request = DecodeRegister(fields, tensors);
    } catch (...) {
      request = StatusFromCurrentException();
    }
    if (request.ok()) {
      RegisterNow(account, *std::move(request), done);
    } else {
      done(request.status());
    }
  });
}

void WorkerService::RegisterNow(const std::shared_ptr<Account>& account, RegisterRequest request,
                                const ControlDone& done) {
  Registered registered{.session = request.session};
  for (const Partition& part : request.parts) {
    for (const Output& feed : part.program.feeds) {
      registered.feeds.push_back({feed.dtype(), feed.shape()});
    }
  }
  worker_->Register(std::move(request), [&](absl::StatusOr<uint64_t> handle) {
    if (!handle.ok()) {
      done(handle.status());
      return;
    }
    registered.brief = worker_->RunsBriefly(*handle);
    absl::Status lost;
    {
      std::lock_guard lock(mutex_);
      lost = account->lost;
      if (lost.ok()) account->handles.emplace(*handle, std::move(registered));
    }
    if (!lost.ok()) {
      worker_->Deregister(*handle);
      done(lost);
      return;
    }
    WireMessage reply;
    net::WireWriter(&reply.fields).U64(*handle);
    done(std::move(reply.fields));
  });
}

void WorkerService::Deregister(const std::shared_ptr<Peer>& master, std::string_view fields,
                               ControlDone done) {
  net::WireReader in(fields);
  const uint64_t handle = in.U64();
  const std::shared_ptr<Account> account = AccountOf(master);
  bool known = false;
  {
    std::lock_guard lock(mutex_);
    known = in.Complete() && account->handles.erase(handle) > 0;
  }
  if (!known) {
    done(NotFound("{} has no plan with the handle {}", master->description(), handle));
    return;
  }
  worker_->Deregister(handle);
  done(std::string());
}

namespace {

absl::StatusOr<StepId> GetStep(net::WireReader& in) {
  const uint64_t session = in.U64();
  const StepId id{session, in.I64()};
  if (!in.ok()) return InvalidArgument("a call that is cut off");
  return id;
}

}  // namespace

bool WorkerService::Owns(const Account& account, uint64_t session) const {
  std::lock_guard lock(mutex_);
  return account.lost.ok() &&
         std::any_of(account.handles.begin(), account.handles.end(),
                     [&](const auto& entry) { return entry.second.session == session; });
}

void WorkerService::Abort(const std::shared_ptr<Peer>& master, std::string_view fields,
                          ControlDone done) {
  constexpr size_t kStepBytes = 16;
  net::WireReader in(fields);
  const absl::StatusOr<StepId> id = GetStep(in);
  if (!id.ok()) {
    done(id.status());
    return;
  }
  absl::Status reason = DecodeStatus(fields.substr(kStepBytes));
  if (!Owns(*AccountOf(master), id->session) || reason.ok()) {
    done(NotFound("{} has no session {:016x} here", master->description(), id->session));
    return;
  }
  worker_->Abort(*id, std::move(reason));
  done(std::string());
}

void WorkerService::CleanUp(const std::shared_ptr<Peer>& master, std::string_view fields,
                            ControlDone done) {
  net::WireReader in(fields);
  const absl::StatusOr<StepId> id = GetStep(in);
  if (!id.ok()) {
    done(id.status());
    return;
  }
  // The call may come after the Deregister of the session's last step; then nobody has steps of it.
  if (!Owns(*AccountOf(master), id->session) && worker_->HasSession(id->session)) {
    done(NotFound("{} has no session {:016x} here", master->description(), id->session));
    return;
  }
  worker_->CleanUp(*id);
  done(std::string());
}

void WorkerService::Reset(std::string_view fields, ControlDone done) {
  worker_->Reset(std::string(fields));
  done(std::string());
}

void WorkerService::PeerLost(const Peer& peer, const absl::Status& reason) {
  std::shared_ptr<Account> account;
  std::vector<StepId> running;
  std::vector<uint64_t> handles;
  std::unordered_set<uint64_t> sessions;
  {
    std::lock_guard lock(mutex_);
    const auto it = accounts_.find(&peer);
    if (it != accounts_.end()) {
      account = std::move(it->second);
      accounts_.erase(it);
      account->lost = reason;
      for (const auto& [id, since] : account->running) running.push_back(id);
      for (const auto& [handle, registered] : account->handles) {
        handles.push_back(handle);
        sessions.insert(registered.session);
      }
      account->handles.clear();
    }
  }
  for (const StepId& id : running) worker_->Abort(id, reason);
  for (const uint64_t handle : handles) worker_->Deregister(handle);
  for (const uint64_t session : sessions) worker_->rendezvous().RemoveSession(session, reason);
  worker_->rendezvous().ForEach([&](Rendezvous& rendezvous) {
    static_cast<ClusterRendezvous&>(rendezvous).TaskLost(peer.identity().task, reason);
  });
}

void WorkerService::Describe(TaskStatus& status) const {
  status.refused_values = refused_values_.load(std::memory_order_relaxed);
  status.requests = requests_->load(std::memory_order_relaxed);
  for (const DeviceStats& device : worker_->stats()) {
    status.busy_nanos += device.busy_nanos;
    status.lock_nanos += device.lock_nanos;
    status.cloned_bytes += device.cloned_bytes;
  }
  std::unordered_map<StepId, std::string, StepIdHash> awaited;
  worker_->rendezvous().ForEach([&](Rendezvous& rendezvous) {
    const auto& step = static_cast<ClusterRendezvous&>(rendezvous);
    awaited[step.id()] = step.Awaited();
  });
  const int64_t now = NowNanos();
  std::lock_guard lock(mutex_);
  for (const auto& [peer, account] : accounts_) {
    status.registered_steps += int64_t(account->handles.size());
    for (const auto& [id, since] : account->running) {
      status.steps.push_back(
          {id.session, id.step, account->master->description(), now - since, awaited[id]});
      awaited.erase(id);
    }
  }
  // Steps whose master is in this process.
  for (auto& [id, tasks] : awaited) {
    if (!tasks.empty()) status.steps.push_back({id.session, id.step, "this task", 0, tasks});
  }
}

}  // namespace tutti
