#include "tutti/cluster/task_services.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/clock.h"
#include "tutti/cluster/coordination.h"
#include "tutti/cluster/remote/remote_worker.h"

namespace tutti {
namespace {

// Calls that only ask how things are, or end something, are not worth waiting long for.
constexpr int64_t kShortPatience = 500'000'000;  // nanoseconds

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

using Reply = Awaited<absl::StatusOr<std::string>>;

// A call to another task.
void Ask(TaskPeers& peers, const std::string& task, ControlMethod method, const std::string& fields,
         Reply& reply) {
  peers.Get(task, kShortPatience,
            [method, fields, &reply](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
              if (!peer.ok()) {
                reply.Set(peer.status());
                return;
              }
              WireMessage message;
              message.fields = fields;
              (*peer)->Call(method, std::move(message),
                            [&reply](auto given) { reply.Set(std::move(given)); });
            });
}

TaskStatus StatusFrom(const std::string& task, const absl::StatusOr<std::string>& reply) {
  absl::StatusOr<TaskStatus> status =
      reply.ok() ? DecodeTaskStatus(*reply) : absl::StatusOr<TaskStatus>(reply.status());
  if (status.ok()) return *std::move(status);
  TaskStatus away;
  away.task = task;
  away.error = MessageOf(status.status());
  return away;
}

}  // namespace

TaskServices::TaskServices(Options options)
    : options_(std::move(options)),
      started_(NowNanos()),
      worker_(options_.worker),
      master_([this](const CompileOptions& compile) { return MakeMaster(compile); }) {}

TaskServices::~TaskServices() = default;

void TaskServices::Start() {
  if (options_.coordinator.empty() || options_.coordinator == options_.peers->self().task) return;
  options_.peers->Get(options_.coordinator, options_.patience_nanos,
                      [over = options_.over](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
                        if (!peer.ok()) over(peer.status());
                      });
}

std::unique_ptr<Master> TaskServices::MakeMaster(const CompileOptions& options) const {
  const std::string& home = options_.peers->self().task;
  WorkersByTask workers;
  for (const std::string& task : options_.tasks) {
    if (task == home) {
      workers[task] = options_.worker;
    } else {
      workers[task] = std::make_shared<RemoteWorker>(options_.peers, task, options_.patience_nanos);
    }
  }
  return std::make_unique<LocalMaster>(std::move(workers), home, options, LocalMaster::kMostSteps,
                                       options_.worker->homes());
}

void TaskServices::OnRequest(const std::shared_ptr<Peer>& peer, DataKind kind, uint64_t call,
                             PeerMessage message) {
  if (kind == DataKind::kValue) {
    worker_.Value(peer, std::move(message));
  } else if (kind == DataKind::kRun) {
    worker_.Run(peer, call, std::move(message));
  } else {
    master_.Run(peer, call, std::move(message));
  }
}

void TaskServices::OnControl(const std::shared_ptr<Peer>& peer, ControlMethod method,
                             std::string fields, std::vector<Tensor> tensors, ControlDone done) {
  switch (method) {
    case ControlMethod::kCreateSession:
      return master_.Create(peer, std::move(fields), std::move(tensors), std::move(done));
    case ControlMethod::kExtendSession:
      return master_.Extend(peer, std::move(fields), std::move(tensors), std::move(done));
    case ControlMethod::kCloseSession:
      return master_.Close(peer, fields, std::move(done));
    case ControlMethod::kExplainSession:
      return master_.Explain(peer, fields, std::move(done));
    case ControlMethod::kAbortRun:
      return master_.Abort(peer, fields, std::move(done));
    case ControlMethod::kCleanUpRun:
      return master_.CleanUp(peer, fields, std::move(done));
    case ControlMethod::kClusterStatus:
      return threads_.Post([this, done = std::move(done)] {
        WireMessage message;
        EncodeTaskStatuses(ClusterStatus(), message);
        done(std::move(message.fields));
      });
    case ControlMethod::kReset:
      return threads_.Post([this, fields = std::move(fields), done = std::move(done)] {
        const absl::Status status = ResetAll(fields);
        done(status.ok() ? absl::StatusOr<std::string>(std::string()) : status);
      });
    case ControlMethod::kTaskStatus: {
      WireMessage message;
      EncodeTaskStatus(Status(), message);
      return done(std::move(message.fields));
    }
    case ControlMethod::kRegisterStep:
      return worker_.Register(peer, std::move(fields), std::move(tensors), std::move(done));
    case ControlMethod::kDeregisterStep:
      return worker_.Deregister(peer, fields, std::move(done));
    case ControlMethod::kAbortStep:
      return worker_.Abort(peer, fields, std::move(done));
    case ControlMethod::kCleanUpStep:
      return worker_.CleanUp(peer, fields, std::move(done));
    case ControlMethod::kResetTask:
      return worker_.Reset(fields, std::move(done));
    case ControlMethod::kStore:
      if (options_.store == nullptr) {
        return done(FailedPrecondition(
            "{} is not the coordinator of its cluster{}", options_.peers->self().task,
            options_.coordinator.empty() ? ": it was given none"
                                         : ", but " + options_.coordinator));
      }
      return options_.store->Handle(CallerOf(peer->identity()), fields, std::move(done));
  }
}

void TaskServices::OnLost(const std::shared_ptr<Peer>& peer, const absl::Status& reason) {
  master_.PeerLost(*peer);
  worker_.PeerLost(*peer, reason);
  const auto peers = options_.peers->All();
  const auto same = [&](const auto& other) { return other->identity() == peer->identity(); };
  // A process is gone with its last link.
  if (std::none_of(peers.begin(), peers.end(), same)) {
    if (options_.store != nullptr) options_.store->CallerLost(CallerOf(peer->identity()));
    if (options_.lost != nullptr) options_.lost(peer->identity(), reason);
  }
  if (!options_.coordinator.empty() && peer->identity().task == options_.coordinator) {
    options_.over(absl::IsCancelled(reason) ? absl::OkStatus() : reason);
  }
}

void TaskServices::AddMetrics(MetricsRegistry& metrics) const {
  metrics.AddGauge("tutti_sessions", "Sessions of other processes that this task is the master of.",
                   [this] { return double(master_.sessions()); });
  const auto refused = [this](uint64_t TaskPeers::Refusals::*count) {
    return [peers = options_.peers, count] { return double(peers->Refused().*count); };
  };
  metrics.AddCounter("tutti_refused_links_total",
                     "Links of older or fenced processes of a task, or of another cluster.",
                     refused(&TaskPeers::Refusals::links));
  metrics.AddCounter("tutti_fenced_messages_total",
                     "Messages and calls of processes that had lost their place.",
                     refused(&TaskPeers::Refusals::messages));
  for (const std::string& task : options_.tasks) {
    if (task == options_.peers->self().task) continue;
    const auto bytes = [&](uint64_t net::Link::Counters::*count) {
      return
          [peers = options_.peers, task, count] { return double(peers->TrafficWith(task).*count); };
    };
    const MetricsRegistry::Labels labels = {{"peer", task}};
    metrics.AddCounter("tutti_link_received_bytes_total",
                       "Bytes that came over the links to a task that are open.",
                       bytes(&net::Link::Counters::bytes_received), labels);
    metrics.AddCounter("tutti_link_sent_bytes_total",
                       "Bytes that went over the links to a task that are open.",
                       bytes(&net::Link::Counters::bytes_sent), labels);
  }
}

TaskStatus TaskServices::Status() const {
  TaskStatus status;
  status.task = options_.peers->self().task;
  status.incarnation = options_.peers->self().incarnation;
  status.address = options_.address;
  status.uptime_nanos = NowNanos() - started_;
  options_.worker->ListDevices([&status](absl::StatusOr<std::vector<DeviceInfo>> devices) {
    if (devices.ok()) status.devices = *std::move(devices);
  });
  status.sessions = master_.sessions();
  status.memory_bytes = ResidentBytes();
  worker_.Describe(status);
  const net::Link::Counters traffic = options_.peers->Traffic();
  status.bytes_received = traffic.bytes_received;
  status.bytes_sent = traffic.bytes_sent;
  const TaskPeers::Refusals refused = options_.peers->Refused();
  status.refused_links = refused.links;
  status.fenced_messages = refused.messages;
  for (const std::shared_ptr<Peer>& peer : options_.peers->All()) {
    const net::Link::Counters counters = peer->counters();
    status.links.push_back({peer->description(), peer->identity().incarnation,
                            counters.messages_sent, counters.bytes_sent, counters.messages_received,
                            counters.bytes_received});
  }
  return status;
}

TaskStatus TaskServices::StatusOf(const std::string& task) const {
  if (task == options_.peers->self().task) return Status();
  Reply reply;
  Ask(*options_.peers, task, ControlMethod::kTaskStatus, "", reply);
  return StatusFrom(task, reply.Wait());
}

std::vector<absl::StatusOr<std::string>> TaskServices::AskOthers(ControlMethod method,
                                                                 const std::string& fields) const {
  std::vector<Reply> replies(options_.tasks.size());
  const std::string& self = options_.peers->self().task;
  for (size_t i = 0; i < replies.size(); ++i) {
    if (options_.tasks[i] != self) {
      Ask(*options_.peers, options_.tasks[i], method, fields, replies[i]);
    }
  }
  std::vector<absl::StatusOr<std::string>> all;
  for (size_t i = 0; i < replies.size(); ++i) {
    all.push_back(options_.tasks[i] == self ? std::string() : replies[i].Wait());
  }
  return all;
}

std::vector<TaskStatus> TaskServices::ClusterStatus() const {
  const auto replies = AskOthers(ControlMethod::kTaskStatus, "");
  std::vector<TaskStatus> statuses;
  for (size_t i = 0; i < replies.size(); ++i) {
    const std::string& task = options_.tasks[i];
    statuses.push_back(task == options_.peers->self().task ? Status()
                                                           : StatusFrom(task, replies[i]));
  }
  return statuses;
}

absl::Status TaskServices::ResetAll(const std::string& container) const {
  options_.worker->Reset(container);
  absl::Status first;
  for (const auto& reply : AskOthers(ControlMethod::kResetTask, container)) {
    first.Update(reply.status());
  }
  return first;
}

}  // namespace tutti
