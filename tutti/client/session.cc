#include "tutti/client/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>

#include "tutti/base/awaited.h"
#include "tutti/base/status.h"
#include "tutti/base/trace.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/target.h"
#include "tutti/placement/placer.h"
#include "tutti/runtime/master.h"

namespace tutti {

struct Session::State {
  State(const Graph& graph, std::unique_ptr<Master> master)
      : graph(graph), master(std::move(master)) {}

  const Graph& graph;
  const std::unique_ptr<Master> master;
  std::atomic<int64_t> next_step{0};
};

namespace {

// Calls the master and waits for its answer, on whatever thread it comes.
template <typename Call>
void Await(const Call& call) {
  Awaited<absl::Status> status;
  call([&status](absl::Status s) { status.Set(std::move(s)); });
  ThrowIfError(status.Wait());
}

// The session's server, or one of its own.
TargetOptions TargetOf(const SessionOptions& options) {
  return {.target = options.target, .token = options.token, .start_seconds = options.start_seconds};
}

std::unique_ptr<Master> MakeMaster(const SessionOptions& options) {
  const CompileOptions compile{
      .optimize = options.optimize,
      .soft_placement = options.soft_placement,
      .placement = ValueOrThrow(placement::ParseMethod(options.placement))};
  if (!options.target.empty()) {
    if (options.server != nullptr) {
      ThrowInvalidArgument("SessionOptions has both a target and a server; give one of them");
    }
    return ValueOrThrow(MasterAtTarget(TargetOf(options), compile));
  }
  const SessionOptions defaults;
  if (options.server != nullptr &&
      (options.job != defaults.job || options.task != defaults.task ||
       options.devices != defaults.devices || options.communicator != nullptr ||
       options.cores_per_device != defaults.cores_per_device ||
       options.device_memory != defaults.device_memory)) {
    ThrowInvalidArgument(
        "SessionOptions::server is given, and job, task, devices, cores_per_device, device_memory "
        "or communicator as well; these belong to the server: give them to ServerOptions");
  }
  std::optional<Server> own;  // its worker outlives it
  if (options.server == nullptr) {
    own.emplace(ServerOptions{.job = options.job,
                              .task = options.task,
                              .devices = options.devices,
                              .cores_per_device = options.cores_per_device,
                              .device_memory = options.device_memory,
                              .communicator = options.communicator});
  }
  const Server& server = own ? *own : *options.server;
  return server.MakeMaster(compile);
}

}  // namespace

Session::Session(const Graph& graph, const SessionOptions& options)
    : Session(graph, MakeMaster(options)) {}

Session::Session(const Graph& graph, std::unique_ptr<Master> master)
    : state_(std::make_unique<State>(graph, std::move(master))) {
  Await([&](auto done) { state_->master->Create(graph, done); });
}

Session::~Session() = default;

void Session::Reset(const SessionOptions& options, const std::string& container) {
  if (options.target.empty() == (options.server == nullptr)) {
    ThrowInvalidArgument(
        fmt::format("Session::Reset of the container \"{}\": give either a target or a server; the "
                    "variables of "
                    "a session that has neither end with it",
                    container));
  }
  if (options.server != nullptr) {
    options.server->Reset(container);
  } else {
    ThrowIfError(ResetTarget(TargetOf(options), container));
  }
}

Session::Session(Session&& other) noexcept = default;

namespace {

// Ids stand for nodes in a request, so a node of another graph would be taken for one of this.
void CheckNode(const Node* node, const Graph& graph, const char* what) {
  if (node == nullptr) {
    ThrowInvalidArgument(fmt::format("a {} is empty (default-constructed)", what));
  }
  if (&node->graph() != &graph) {
    ThrowInvalidArgument(fmt::format("{} {}: it belongs to another graph than the session's", what,
                                     node->Describe()));
  }
}

OutputId IdOf(const Output& output, const Graph& graph, const char* what) {
  CheckNode(output.node, graph, what);
  return {output.node->id(), output.index};
}

MasterRunRequest MakeRequest(const Graph& graph, std::span<const Feed> feeds,
                             std::span<const Output> fetches, std::span<const Node* const> targets,
                             const RunOptions& options) {
  MasterRunRequest request;
  for (const auto& [output, value] : feeds) {
    request.feeds.push_back(IdOf(output, graph, "feed"));
    request.feed_values.push_back(value);
  }
  for (const Output& fetch : fetches) request.fetches.push_back(IdOf(fetch, graph, "fetch"));
  for (const Node* target : targets) {
    CheckNode(target, graph, "target");
    request.targets.push_back(target->id());
  }
  request.timeout_nanos = options.timeout.count();
  request.trace = options.trace;
  request.caller_waits = true;
  return request;
}

void Fill(RunTrace& to, StepTrace trace) {
  to.arena_bytes = trace.arena_bytes;
  to.peaks.clear();
  for (PeakRecord& peak : trace.peaks) {
    PeakTrace& added = to.peaks.emplace_back();
    added.device = std::move(peak.device);
    added.node = std::move(peak.node);
    for (auto& [name, bytes] : peak.values) added.values.push_back({std::move(name), bytes});
  }
  to.nodes.clear();
  for (NodeRecord& node : trace.nodes) {
    to.nodes.push_back({std::move(node.name), std::move(node.op), std::move(node.device),
                        node.start_nanos, node.end_nanos, node.bytes, std::move(node.transfer)});
  }
}

RunResponse RunToEnd(Master& master, MasterRunRequest&& request) {
  Awaited<RunResponse> answer;
  master.Run(std::move(request), [&answer](RunResponse&& r) { answer.Set(std::move(r)); });
  return answer.Wait();
}

RunResponse RunUntilStopped(Master& master, MasterRunRequest&& request,
                            const std::stop_token& stop) {
  const absl::Status stopped = Cancelled("the caller asked for the run to stop");
  const int64_t step = request.step;
  RunResponse response;
  if (stop.stop_requested()) {  // nothing begins; an Abort could come after a quick step's end
    response.status = stopped;
    return response;
  }
  {
    // Destroyed, which waits for the callback, before the step is cleaned up.
    const std::stop_callback stopper(stop, [&] { master.Abort(step, stopped); });
    response = RunToEnd(master, std::move(request));
  }
  if (stop.stop_requested()) master.CleanUp(step);
  return response;
}

void CheckOptions(const RunOptions& options) {
  if (options.trace && options.trace_result == nullptr) {
    ThrowInvalidArgument(
        "RunOptions::trace is set without a trace_result; give the RunTrace that is to be filled");
  }
  if (options.timeout.count() < 0) {
    ThrowInvalidArgument(
        fmt::format("RunOptions::timeout is {} ms; expected a positive time, or 0 for no limit",
                    double(options.timeout.count()) / 1e6));
  }
}

}  // namespace

void Session::RunInto(std::span<const Feed> feeds, std::span<const Output> fetches,
                      std::span<const Node* const> targets, std::span<Tensor> results,
                      const RunOptions& options) {
  CheckOptions(options);
  if (results.size() != fetches.size()) {
    ThrowInvalidArgument(
        fmt::format("{} results given for {} fetches", results.size(), fetches.size()));
  }
  MasterRunRequest request = MakeRequest(state_->graph, feeds, fetches, targets, options);
  request.step = state_->next_step.fetch_add(1, std::memory_order_relaxed);
  RunResponse response = options.stop.stop_possible()
                             ? RunUntilStopped(*state_->master, std::move(request), options.stop)
                             : RunToEnd(*state_->master, std::move(request));
  ThrowIfError(response.status);
  std::move(response.results.begin(), response.results.end(), results.begin());
  if (response.trace != nullptr) Fill(*options.trace_result, std::move(*response.trace));
}

std::vector<Tensor> Session::Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                 std::span<const Node* const> targets, const RunOptions& options) {
  std::vector<Tensor> results(fetches.size());
  RunInto(feeds, fetches, targets, results, options);
  return results;
}

Tensor Session::Run(std::initializer_list<Feed> feeds, Output fetch, const RunOptions& options) {
  Tensor result;
  RunInto({feeds.begin(), feeds.size()}, {&fetch, 1}, {}, {&result, 1}, options);
  return result;
}

std::vector<Tensor> Session::Run(std::initializer_list<Feed> feeds,
                                 std::initializer_list<Output> fetches,
                                 std::initializer_list<const Node*> targets,
                                 const RunOptions& options) {
  return Run(std::span(feeds.begin(), feeds.size()), std::span(fetches.begin(), fetches.size()),
             std::span(targets.begin(), targets.size()), options);
}

void Session::RunTargets(std::initializer_list<Feed> feeds,
                         std::initializer_list<const Node*> targets, const RunOptions& options) {
  RunInto({feeds.begin(), feeds.size()}, {}, {targets.begin(), targets.size()}, {}, options);
}

void Session::Initialize() {
  // Variable() builds, beside each variable, the Assign that initialises it and an IsInitialized.
  std::vector<Output> checks;
  std::vector<const Node*> initializers;
  for (const auto& node : state_->graph.nodes()) {
    if (node->op() != "IsInitialized") continue;
    const Node* variable = node->input(0).node;
    if (variable->op() != "Variable") continue;
    if (node->name() != variable->name() + "/is_initialized") continue;
    const Node* initializer = state_->graph.Find(variable->attr<std::string>("initializer"));
    if (initializer == nullptr) continue;
    checks.push_back(node->output());
    initializers.push_back(initializer);
  }
  const std::vector<Tensor> initialized = Run(std::span<const Feed>(), checks);
  std::vector<const Node*> missing;
  for (size_t i = 0; i < checks.size(); ++i) {
    if (!initialized[i].scalar<bool>()) missing.push_back(initializers[i]);
  }
  if (!missing.empty()) RunInto({}, {}, missing, {}, {});
}

void RunTrace::WriteChromeTrace(const std::string& path) const {
  ChromeTraceWriter writer;
  writer.NameProcess(0, "step");
  std::vector<std::string> devices;
  struct TransferEnds {
    TraceArrow::End send, receive;
    bool sent = false, received = false;
  };
  std::map<std::string, TransferEnds> transfers;  // by key
  for (const NodeTrace& node : nodes) {
    auto row = std::find(devices.begin(), devices.end(), node.device);
    if (row == devices.end()) {
      writer.NameThread(0, int64_t(devices.size()), node.device);
      row = devices.insert(devices.end(), node.device);
    }
    writer.Add({.name = node.name,
                .category = node.op,
                .thread = row - devices.begin(),
                .start_nanos = node.start_nanos,
                .duration_nanos = node.end_nanos - node.start_nanos,
                .args = {{"op", node.op}, {"bytes", node.bytes}}});
    if (!node.transfer.empty()) {
      TransferEnds& ends = transfers[node.transfer];
      TraceArrow::End& end = node.op == "Send" ? ends.send : ends.receive;
      end = {0, row - devices.begin(), node.op == "Send" ? node.start_nanos : node.end_nanos};
      (node.op == "Send" ? ends.sent : ends.received) = true;
    }
  }
  for (auto& [key, ends] : transfers) {
    if (ends.sent && ends.received) writer.Add(TraceArrow{"transfer", ends.send, ends.receive});
  }
  ThrowIfError(writer.Write(path));
}

PlacementReport Session::Explain() {
  Awaited<absl::StatusOr<std::string>> report;
  state_->master->Explain([&report](absl::StatusOr<std::string> r) { report.Set(std::move(r)); });
  return PlacementReport::FromJson(ValueOrThrow(report.Wait()));
}

void Session::Close() {
  Await([&](auto done) { state_->master->Close(done); });
}

}  // namespace tutti
