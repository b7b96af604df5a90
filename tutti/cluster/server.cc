#include "tutti/cluster/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/base/metrics/metrics.h"
#include "tutti/base/status.h"
#include "tutti/cluster/cluster_rendezvous.h"
#include "tutti/cluster/cluster_spec.h"
#include "tutti/cluster/coordination.h"
#include "tutti/cluster/remote/cluster_network.h"
#include "tutti/cluster/share_of_host.h"
#include "tutti/cluster/task_services.h"
#include "tutti/device/device.h"
#include "tutti/net/link/links.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {
namespace {

// A device may use up to this many threads even if the process has fewer cores; they then share
// cores.
constexpr int kFewCores = 16;

void Check(const ServerOptions& options) {
  if (!IsJobName(options.job)) {
    ThrowInvalidArgument(fmt::format(
        "job \"{}\": expected a name of letters, digits, '_' and '-', such as \"worker\"",
        options.job));
  }
  if (options.task < 0) {
    ThrowInvalidArgument(
        fmt::format("task {} of job \"{}\": expected 0 or more", options.task, options.job));
  }
  if (options.devices < 1 || options.devices > 1024) {
    ThrowInvalidArgument(fmt::format("a task has 1 to 1024 devices, got {}", options.devices));
  }
  if (options.device_memory < 0) {
    ThrowInvalidArgument(
        fmt::format("device_memory is {}; expected a number of bytes, or 0 for that of the host",
                    options.device_memory));
  }
  const int most_cores = std::max(UsableCores(), kFewCores);
  if (options.cores_per_device < 0 || options.cores_per_device > most_cores) {
    ThrowInvalidArgument(fmt::format(
        "cores_per_device is {}, and this process may use {} cores; expected 1 to {}, or 0 to "
        "divide all cores among the devices",
        options.cores_per_device, UsableCores(), most_cores));
  }
}

// What a device has, and whether lanes must share cores.
struct Division {
  int cores = 1;                         // of each device
  std::vector<std::vector<int>> pinned;  // by device; empty: the system chooses
  bool crowded = false;
};

// How many tasks of the cluster run on the host of this one.
int TasksHere(const ServerOptions& options) {
  const auto job = options.cluster.find(options.job);
  if (job == options.cluster.end() || !job->second.contains(options.task)) return 1;
  std::vector<std::string> addresses;
  for (const auto& [name, tasks] : options.cluster) {
    for (const auto& [index, address] : tasks) addresses.push_back(address);
  }
  return CountOfHost(addresses, job->second.at(options.task));
}

// Several devices have cores of their own where there are enough. A single one takes what the
// system gives it: other tasks on this host may have one, too. Tasks of one host that nobody has
// given cores take an even share each (share_of_host.h).
Division Divide(const ServerOptions& options) {
  Division division;
  if (options.device_per_numa_node && options.devices > 1) {
    division.pinned = UsableCoresByNode();
    const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
    division.cores =
        int(std::min_element(division.pinned.begin(), division.pinned.end(), fewer)->size());
    return division;
  }
  const std::vector<int> usable = NumbersOfUsableCores();
  const int count = UsableCores();
  const int share = ShareOfHost(CountHostCores(), TasksHere(options));
  division.cores = options.cores_per_device > 0 ? options.cores_per_device
                                                : std::max(1, share / options.devices);
  const int wanted = division.cores * options.devices;
  division.crowded = wanted > count;
  static std::atomic<bool> told = false;
  if (division.crowded && !told.exchange(true)) {
    Log(LogLevel::kInfo,
        "{} device{} of {} core{} each share the {} core{} that this process may use",
        options.devices, options.devices == 1 ? "" : "s", division.cores,
        division.cores == 1 ? "" : "s", count, count == 1 ? "" : "s");
  }
  if (!division.crowded && options.devices > 1 && share == count && int(usable.size()) == count) {
    for (int i = 0; i < options.devices; ++i) {
      if (options.cores_per_device == 0) {
        division.pinned.push_back(ShareOfCores(usable, i, options.devices));
      } else {
        division.pinned.emplace_back(usable.begin() + i * division.cores,
                                     usable.begin() + (i + 1) * division.cores);
      }
    }
  }
  return division;
}

}  // namespace

// The connections of a task of a cluster.
struct Server::Member {
  std::shared_ptr<TaskPeers> peers;
  std::unique_ptr<Coordination> coordination;  // null without a coordinator
  std::unique_ptr<TaskServices> services;
  std::unique_ptr<ClusterNetwork> network;

  ~Member() {
    if (services != nullptr) services->FinishSteps();
    absl::Status end;
    if (coordination != nullptr) {
      // Some may not have heard of it before the store ends.
      if (coordination->service() != nullptr) end = coordination->Failure();
      coordination->Leave();
      if (coordination->service() != nullptr) coordination->service()->Stop();
    }
    if (end.ok() && peers != nullptr) end = Cancelled("{} has ended", peers->self().task);
    if (peers != nullptr) peers->Stop(end);
    network.reset();
    services.reset();
    coordination.reset();
  }
};

struct Server::Waiting {
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  absl::Status why;  // it must end, if not on purpose

  void Stop(const absl::Status& reason) {
    std::lock_guard lock(mutex);
    if (!stopped) why = reason;
    stopped = true;
    changed.notify_all();
  }
};

namespace {

// The tasks of a checked cluster with their addresses.
std::map<std::string, std::string> AddressesOf(const ClusterSpec& spec) {
  std::map<std::string, std::string> addresses;
  for (const TaskId& task : spec.tasks()) addresses[ToString(task)] = spec.AddressOf(task);
  return addresses;
}

// The options with the number of devices and the coordinator that count; no coordinator is empty.
ServerOptions Resolve(ServerOptions options) {
  if (options.device_per_numa_node) {
    options.devices = int(UsableCoresByNode().size());
    options.cores_per_device = 0;
  }
  if (options.coordinator == "none") {
    options.coordinator.clear();
  } else if (options.coordinator.empty()) {
    const auto chief = options.cluster.find("chief");
    const bool there = chief != options.cluster.end() && chief->second.contains(0);
    if (there) options.coordinator = "/job:chief/task:0";
  }
  return options;
}

// The task whose end ends this one.
std::string EndsWith(const ServerOptions& options) {
  return options.coordinator.starts_with("/job:") ? options.coordinator : "";
}

ClusterSpec SpecOf(const ServerOptions& options) {
  ClusterSpec spec = ValueOrThrow(ClusterSpec::Make(options.cluster));
  if (!spec.Has({options.job, options.task})) {
    ThrowInvalidArgument(fmt::format("the cluster has no task {} of job \"{}\"; it has:\n{}",
                                     options.task, options.job, spec.ToString()));
  }
  if (!(options.start_seconds >= 0 && options.start_seconds <= 1e6)) {
    ThrowInvalidArgument(
        fmt::format("start_seconds is {}; expected 0 to 1,000,000", options.start_seconds));
  }
  return spec;
}

}  // namespace

Server::Server(const ServerOptions& given) : waiting_(std::make_unique<Waiting>()) {
  const ServerOptions options = Resolve(given);
  Check(options);
  task_ = fmt::format("/job:{}/task:{}", options.job, options.task);
  Division division = Divide(options);
  LocalWorkerOptions worker{.job = options.job,
                            .task = options.task,
                            .devices = options.devices,
                            .cores = division.cores,
                            .pinned = std::move(division.pinned),
                            .device_memory = options.device_memory,
                            .crowded = division.crowded,
                            .communicator = options.communicator};
  if (options.cluster.empty()) {
    worker_ = std::make_shared<LocalWorker>(std::move(worker));
    return;
  }
  const ClusterSpec spec = SpecOf(options);
  const net::TaskIdentity self{task_, net::MakeIncarnation()};
  member_ = std::make_unique<Member>();
  // Its worker outlives what comes over the links.
  member_->peers = std::make_shared<TaskPeers>(TaskPeers::Options{
      .self = self,
      .fingerprint = spec.Fingerprint(),
      .pool = [this](std::string_view device) -> MemoryPool& { return worker_->PoolOf(device); }});
  worker.incarnation = self.incarnation;
  worker.make_rendezvous = [peers = member_->peers](const StepId& id) {
    return std::make_shared<ClusterRendezvous>(id, peers);
  };
  worker_ = std::make_shared<LocalWorker>(std::move(worker));
  const std::string& own = spec.AddressOf({options.job, options.task});
  member_->network =
      ValueOrThrow(ClusterNetwork::Make({.self = self,
                                         .token = options.token,
                                         .addresses = AddressesOf(spec),
                                         .bind = options.bind.empty() ? own : options.bind,
                                         .advertised = own,
                                         .insecure = options.insecure,
                                         .first_stays = options.coordinator == task_,
                                         .start_seconds = options.start_seconds,
                                         .stopped = options.stopped},
                                        member_->peers.get(), member_->peers.get()));
  worker_->SetMemorySource(member_->network->memory(), ClusterNetwork::kLeastShared);
  TaskServices::Options services{
      .worker = worker_,
      .peers = member_->peers,
      .address = own,
      .tasks = {},
      .patience_nanos = int64_t(options.start_seconds * 1e9),
      .coordinator = EndsWith(options),
      .over = [this, member = member_.get()](const absl::Status& why) {
        // It answers a second process of this task as well.
        const absl::Status lost =
            absl::IsAlreadyExists(why) ? why : WithPrefix(why, "the coordinator is lost: ");
        member->coordination->CoordinatorLost(why.ok() ? Cancelled("the coordinator has ended")
                                                       : lost);
        waiting_->Stop(lost);
      }};
  for (const TaskId& task : spec.tasks()) services.tasks.push_back(ToString(task));
  if (!options.coordinator.empty()) {
    const TaskId chief{"chief", 0};
    const bool has_chief = EndsWith(options).empty() && spec.Has(chief);
    member_->coordination = ValueOrThrow(
        Coordination::Make({.coordinator = options.coordinator,
                            .peers = member_->peers,
                            .tasks = services.tasks,
                            .fingerprint = spec.Fingerprint(),
                            .place = fmt::format("{}, pid {}", own, ::getpid()),
                            .start_seconds = options.start_seconds,
                            .leader = !options.leader.empty() ? options.leader
                                      : has_chief             ? ToString(chief)
                                                              : "",
                            .reports_lost = options.reports_lost,
                            .stopped = options.stopped,
                            .over = [this](const absl::Status& why) { waiting_->Stop(why); }}));
    services.store = member_->coordination->service();
    services.lost = [coordination = member_->coordination.get()](const net::TaskIdentity& process,
                                                                 const absl::Status& why) {
      coordination->PeerLost(process, why);
    };
  }
  member_->services = std::make_unique<TaskServices>(std::move(services));
  member_->peers->Start(member_->network.get(), member_->services.get());
  ThrowIfError(member_->network->Start());
  member_->services->Start();
  if (member_->coordination != nullptr) member_->coordination->Start();
}

Server::~Server() { member_.reset(); }

std::vector<DeviceInfo> Server::devices() const {
  Awaited<absl::StatusOr<std::vector<DeviceInfo>>> listed;
  worker_->ListDevices([&listed](auto devices) { listed.Set(std::move(devices)); });
  return ValueOrThrow(listed.Wait());
}

std::vector<DeviceStats> Server::stats() const { return worker_->stats(); }

void Server::AddMetrics(MetricsRegistry& metrics) const {
  const std::vector<DeviceInfo> list = devices();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto value = [worker = worker_, i](int64_t DeviceStats::*field) {
      return [worker, i, field] { return double(worker->stats()[i].*field); };
    };
    const auto seconds = [value](int64_t DeviceStats::*nanos) {
      return [read = value(nanos)] { return read() / 1e9; };
    };
    const MetricsRegistry::Labels labels = {{"device", list[i].name}};
    metrics.AddCounter("tutti_device_cloned_bytes_total",
                       "Bytes of variables that updates copied because somebody held the value.",
                       value(&DeviceStats::cloned_bytes), labels);
    metrics.AddCounter("tutti_device_busy_seconds_total",
                       "Seconds in which threads ran nodes of the device.",
                       seconds(&DeviceStats::busy_nanos), labels);
    metrics.AddCounter("tutti_device_lock_seconds_total",
                       "Seconds in which readers and updates of variables waited for each other.",
                       seconds(&DeviceStats::lock_nanos), labels);
    metrics.AddGauge("tutti_device_variable_bytes", "Bytes of all variables.",
                     value(&DeviceStats::variable_bytes), labels);
    metrics.AddGauge("tutti_device_pool_bytes",
                     "Bytes of results, and of values that only the run could size.",
                     value(&DeviceStats::pool_bytes), labels);
  }
  if (member_ == nullptr) return;
  const auto traffic = [peers = member_->peers](uint64_t net::Link::Counters::*field) {
    return [peers, field] { return double(peers->Traffic().*field); };
  };
  metrics.AddCounter("tutti_requests_total", "Parts of steps that other tasks asked this one for.",
                     [requests = member_->services->requests()] { return double(*requests); });
  metrics.AddCounter("tutti_received_bytes_total", "Bytes that came from other tasks.",
                     traffic(&net::Link::Counters::bytes_received));
  metrics.AddCounter("tutti_sent_bytes_total", "Bytes that went to other tasks.",
                     traffic(&net::Link::Counters::bytes_sent));
  member_->services->AddMetrics(metrics);
}

void Server::Reset(const std::string& container) {
  if (member_ == nullptr) {
    worker_->Reset(container);
  } else {
    ThrowIfError(member_->services->ResetAll(container));
  }
}

std::string Server::address() const {
  return member_ == nullptr ? "" : member_->network->address();
}

std::vector<TaskStatus> Server::ClusterStatus() const {
  if (member_ == nullptr) return {};
  return member_->services->ClusterStatus();
}

TaskStatus Server::StatusOf(const std::string& task) const {
  return member_->services->StatusOf(task);
}

void Server::Join() {
  std::unique_lock lock(waiting_->mutex);
  waiting_->changed.wait(lock, [this] { return waiting_->stopped; });
  ThrowIfError(waiting_->why);
}

bool Server::JoinFor(std::chrono::nanoseconds time) {
  std::unique_lock lock(waiting_->mutex);
  const bool over = waiting_->changed.wait_for(lock, time, [this] { return waiting_->stopped; });
  ThrowIfError(waiting_->why);
  return over;
}

void Server::AwaitTasks(double seconds) {
  const auto members = membership();
  if (members == nullptr) {
    ThrowInvalidArgument(task_ + " has no coordinator, so it cannot know of the other tasks");
  }
  ThrowIfError(members->AwaitAll(seconds));
}

std::shared_ptr<net::Membership> Server::membership() const {
  if (member_ == nullptr || member_->coordination == nullptr) return nullptr;
  return ValueOrThrow(member_->coordination->membership());
}

void Server::Stop() { waiting_->Stop(absl::OkStatus()); }

std::unique_ptr<Master> Server::MakeMaster(const CompileOptions& options) const {
  if (member_ != nullptr) return member_->services->MakeMaster(options);
  return std::make_unique<LocalMaster>(WorkersByTask{{task_, worker_}}, task_, options,
                                       LocalMaster::kMostSteps, worker_->homes());
}

}  // namespace tutti
