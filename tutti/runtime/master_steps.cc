#include "tutti/runtime/master_steps.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/log.h"
#include "tutti/compile/extract.h"
#include "tutti/runtime/measure/calibrate.h"

namespace tutti {

MasterStep::~MasterStep() {
  for (const Part& part : parts) part.worker->Deregister(part.handle);
}

MasterSteps::MasterSteps(WorkersByTask workers, std::string home, CompileOptions options,
                         size_t most_steps, std::shared_ptr<placement::StateHomes> homes)
    : workers_(std::move(workers)),
      home_(std::move(home)),
      options_(options),
      session_(MakeRandomId()),
      folding_("/job:master/task:0/cpu:0", 1),
      placer_(options, std::move(homes)),
      steps_(most_steps) {}

absl::Status MasterSteps::SetGraph(const Graph& graph) {
  graph_ = &graph;
  return ListDevices(home_);
}

absl::Status MasterSteps::ListDevices(const std::string& task) {
  {
    std::lock_guard lock(mutex_);
    if (devices_.contains(task)) return absl::OkStatus();
  }
  Awaited<absl::StatusOr<std::vector<DeviceInfo>>> listed;
  workers_.at(task)->ListDevices([&listed](auto devices) { listed.Set(std::move(devices)); });
  TUTTI_ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, listed.Wait());
  if (devices.empty()) return FailedPrecondition("task {} has no devices", task);
  for (const DeviceInfo& device : devices) {
    if (device.name.starts_with(task + "/")) continue;
    return Internal("task {} lists the device {}", task, device.name);
  }
  std::lock_guard lock(mutex_);
  devices_.emplace(task, std::move(devices));
  return absl::OkStatus();
}

// A task that a node names in full must answer. Of several that a partial name means, those that do
// not answer are left out.
absl::StatusOr<std::vector<DeviceInfo>> MasterSteps::DevicesFor(const Program& program) {
  std::set<std::string> names;
  for (const auto& node : program.graph->nodes()) names.insert(node->device());
  std::set<std::string> needed = {home_};
  for (const std::string& name : names) {
    const absl::StatusOr<DeviceName> wanted = DeviceName::Parse(name);
    if (name.empty() || !wanted.ok() || (!wanted->job && !wanted->task)) continue;
    for (const auto& [task, worker] : workers_) {
      const absl::StatusOr<DeviceName> candidate = DeviceName::Parse(task);
      if (!candidate.ok() || needed.contains(task)) continue;
      if (wanted->job && wanted->job != candidate->job) continue;
      if (wanted->task && wanted->task != candidate->task) continue;
      const absl::Status status = ListDevices(task);
      if (status.ok()) {
        needed.insert(task);
      } else if (wanted->job && wanted->task && !options_.soft_placement) {
        return status;
      }
    }
  }
  return DevicesOf(needed);
}

absl::StatusOr<std::vector<DeviceInfo>> MasterSteps::AllDevices() {
  std::set<std::string> needed = {home_};
  for (const auto& [task, worker] : workers_) {
    {
      std::lock_guard lock(mutex_);
      if (away_.contains(task)) continue;
    }
    const absl::Status status = ListDevices(task);
    if (status.ok()) {
      needed.insert(task);
      continue;
    }
    Log(LogLevel::kInfo, "placement: {} is left out: {}", task, MessageOf(status));
    std::lock_guard lock(mutex_);
    away_.insert(task);
  }
  return DevicesOf(needed);
}

std::vector<DeviceInfo> MasterSteps::DevicesOf(const std::set<std::string>& needed) {
  std::vector<DeviceInfo> devices;
  std::lock_guard lock(mutex_);
  const auto add = [&](const std::string& task) {
    const std::vector<DeviceInfo>& own = devices_.at(task);
    devices.insert(devices.end(), own.begin(), own.end());
  };
  add(home_);
  for (const std::string& task : needed) {
    if (task != home_) add(task);
  }
  return devices;
}

placement::Machines MasterSteps::MachinesOf(const std::vector<DeviceInfo>& devices) {
  placement::Machines machines = placement::MakeMachines(devices, CalibratedSpeed());
  // Devices of this process share its cores; what other hosts have is not known.
  machines.shared_cores.assign(devices.size(), 0);
  if (!devices.empty()) machines.shared_cores[0] = machines.machine.cores;
  std::lock_guard lock(probing_);
  ProbeTaskLinks(workers_, home_, devices, links_);
  UseLinks(links_, machines);
  return machines;
}

// A request may come from outside and name anything.
absl::Status MasterSteps::CheckRequest(const MasterRunRequest& request) const {
  const auto check = [&](int64_t node, const char* what) -> absl::Status {
    if (node >= 0 && node < graph_->size()) return absl::OkStatus();
    return InvalidArgument("a {} is node {}; the graph has {} nodes", what, node, graph_->size());
  };
  const auto check_output = [&](const OutputId& output, const char* what) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(check(output.node, what));
    const Node& node = *graph_->nodes()[size_t(output.node)];
    if (output.index >= 0 && output.index < node.num_outputs()) return absl::OkStatus();
    return InvalidArgument("{} {}: there is no output {}; it has {}", what, node.Describe(),
                           output.index, node.num_outputs());
  };
  if (request.feeds.size() != request.feed_values.size()) {
    return InvalidArgument("{} values given for {} feeds", request.feed_values.size(),
                           request.feeds.size());
  }
  for (const OutputId& feed : request.feeds) TUTTI_RETURN_IF_ERROR(check_output(feed, "feed"));
  for (const OutputId& fetch : request.fetches) {
    TUTTI_RETURN_IF_ERROR(check_output(fetch, "fetch"));
  }
  for (const int64_t target : request.targets) TUTTI_RETURN_IF_ERROR(check(target, "target"));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<MasterStep>> MasterSteps::Find(const MasterRunRequest& request,
                                                              const AbortCheck& aborted) {
  thread_local StepKey key;  // grows to its size once per thread
  SetKey(request, key);
  if (std::shared_ptr<MasterStep> step = steps_.Find(key)) {
    if (step->measured == nullptr || !step->measured->TakeTurn()) return step;
    // A step that runs well is not lost because it cannot be placed anew.
    const auto better = Compile(request, aborted, step.get());
    if (!better.ok() || *better == nullptr) return step;
    steps_.Add(key, *better);
    return *better;
  }
  TUTTI_ASSIGN_OR_RETURN(std::shared_ptr<MasterStep> step, Compile(request, aborted));
  steps_.Add(key, step);
  return step;
}

absl::StatusOr<std::shared_ptr<MasterStep>> MasterSteps::Compile(const MasterRunRequest& request,
                                                                 const AbortCheck& aborted,
                                                                 const MasterStep* before) {
  const auto& nodes = graph_->nodes();
  const auto output = [&](const OutputId& id) {
    return Output{nodes[size_t(id.node)].get(), id.index};
  };
  StepRequest wanted;
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& value = request.feed_values[i];
    wanted.feeds.push_back({output(request.feeds[i]), {value.dtype(), value.shape()}});
  }
  for (const OutputId& fetch : request.fetches) wanted.fetches.push_back(output(fetch));
  for (const int64_t target : request.targets) {
    wanted.targets.push_back(nodes[size_t(target)].get());
  }
  TUTTI_ASSIGN_OR_RETURN(Program program, Extract(*graph_, wanted));
  TUTTI_RETURN_IF_ERROR(aborted());
  TUTTI_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices,
                         placer_.chooses() ? AllDevices() : DevicesFor(program));
  if (placer_.chooses()) {
    const auto fell_back = [this](const Node& node, const std::string& why) {
      LogFallBack(node, why);
    };
    const MeasuredStep* const measured = before == nullptr ? nullptr : before->measured.get();
    TUTTI_ASSIGN_OR_RETURN(
        std::optional<Program> placed,
        placer_.Place(*graph_, wanted, program, MachinesOf(devices), measured, fell_back));
    if (!placed) return std::shared_ptr<MasterStep>();
    program = *std::move(placed);
  } else if (std::any_of(devices.begin(), devices.end(), [](const auto& d) { return d.limited; })) {
    TUTTI_RETURN_IF_ERROR(placer_.CheckMemory(program, devices));
  }
  TUTTI_ASSIGN_OR_RETURN(
      std::vector<Partition> parts,
      CompileWhole(program, devices, &folding_, options_,
                   [this](const Node& node, const std::string& why) { LogFallBack(node, why); }));
  TUTTI_RETURN_IF_ERROR(aborted());
  auto step = std::make_shared<MasterStep>();
  if (placer_.measures(devices)) {
    step->measured = std::make_unique<MeasuredStep>(StepPlacer::DevicesByName(program));
    if (before != nullptr) step->measured->TakeOver();
  } else if (parts.size() > 1) {
    step->measured = std::make_unique<MeasuredStep>();
  }
  TUTTI_RETURN_IF_ERROR(Register(std::move(parts), *step));
  for (MasterStep::Part& part : step->parts) {
    const auto is_all = [](const std::vector<int>& index, size_t count) {
      std::vector<int> all(count);
      std::iota(all.begin(), all.end(), 0);
      return index == all;
    };
    part.takes_all_feeds = is_all(part.feed_index, request.feeds.size());
    part.gives_all_fetches = is_all(part.fetch_index, request.fetches.size());
  }
  std::lock_guard lock(mutex_);
  if (step->measured != nullptr) {
    step->request = wanted;
    std::erase_if(measured_, [](const auto& other) { return other.expired(); });
    measured_.push_back(step);
  }
  last_ = std::move(wanted);
  return step;
}

absl::StatusOr<std::string> MasterSteps::Explain() {
  StepRequest last;
  std::shared_ptr<MasterStep> longest;
  {
    std::lock_guard lock(mutex_);
    last = last_;
    for (const std::weak_ptr<MasterStep>& other : measured_) {
      const std::shared_ptr<MasterStep> step = other.lock();
      if (step == nullptr || step->measured->StepSeconds() < 0) continue;
      if (longest != nullptr && step->measured->StepSeconds() < longest->measured->StepSeconds()) {
        continue;
      }
      longest = step;
    }
    if (longest != nullptr) last = longest->request;
  }
  if (last.fetches.empty() && last.targets.empty()) {
    return FailedPrecondition("no step was run yet; run the one that is to be explained first");
  }
  TUTTI_ASSIGN_OR_RETURN(const Program program, Extract(*graph_, last));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices,
                         placer_.chooses() ? AllDevices() : DevicesFor(program));
  return placer_.Explain(program, MachinesOf(devices),
                         longest == nullptr ? nullptr : longest->measured.get());
}

// A node may be part of many steps, and each is placed anew.
void MasterSteps::LogFallBack(const Node& node, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (!fell_back_.insert(node.name()).second) return;
  }
  Log(LogLevel::kWarning, "{}", why);
}

// Gives every worker its parts. The workers compile at the same time, those of other processes
// first: the one of this process does so before it returns.
absl::Status MasterSteps::Register(std::vector<Partition> parts, MasterStep& step) {
  Worker* const own = workers_.at(home_).get();
  std::vector<std::pair<Worker*, RegisterRequest>> requests;
  for (Partition& part : parts) {
    const std::string task = part.device.substr(0, part.device.rfind('/'));
    Worker* const worker = workers_.at(task).get();
    auto request = std::find_if(requests.begin(), requests.end(),
                                [&](const auto& entry) { return entry.first == worker; });
    if (request == requests.end()) {
      RegisterRequest fresh{.session = session_, .parts = {}, .options = options_};
      request = requests.insert(worker == own ? requests.end() : requests.begin(),
                                {worker, std::move(fresh)});
    }
    request->second.parts.push_back(std::move(part));
  }
  std::vector<Awaited<absl::StatusOr<uint64_t>>> handles(requests.size());
  std::vector<MasterStep::Part> registered(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& [worker, request] = requests[i];
    registered[i].worker = worker;
    for (const Partition& part : request.parts) {
      std::copy(part.feed_index.begin(), part.feed_index.end(),
                std::back_inserter(registered[i].feed_index));
      std::copy(part.fetch_index.begin(), part.fetch_index.end(),
                std::back_inserter(registered[i].fetch_index));
    }
    worker->Register(std::move(request),
                     [&handle = handles[i]](auto given) { handle.Set(std::move(given)); });
  }
  absl::Status status;
  for (size_t i = 0; i < handles.size(); ++i) {
    const absl::StatusOr<uint64_t> handle = handles[i].Wait();
    if (!handle.ok()) {
      if (status.ok()) status = handle.status();
      continue;
    }
    registered[i].handle = *handle;
    step.parts.push_back(std::move(registered[i]));
  }
  return status;
}

}  // namespace tutti
