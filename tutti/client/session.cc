#include "tutti/client/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/base/trace.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {

struct Session::State {
  const Graph& graph;
  std::unique_ptr<Master> master;
};

namespace {

// So many a device may have on every machine: then they take turns, which is slower but right.
constexpr int kFewCores = 16;

int CoresPerDevice(const SessionOptions& options) {
  if (options.cores_per_device > 0) return options.cores_per_device;
  return std::max(1, UsableCores() / options.devices);
}

// Calls that complete before they return: an in-process master does.
template <typename Call>
void Await(const Call& call) {
  absl::Status status;
  call([&status](absl::Status s) { status = std::move(s); });
  ThrowIfError(status);
}

}  // namespace

Session::Session(const Graph& graph, const SessionOptions& options) {
  if (!options.target.empty()) {
    ThrowInvalidArgument(
        fmt::format("target \"{}\" is not known; expected \"\" for this process", options.target));
  }
  if (options.devices < 1 || options.devices > 1024) {
    ThrowInvalidArgument(fmt::format("a session needs 1 to 1024 devices, got {}", options.devices));
  }
  const int most_cores = std::max(UsableCores(), kFewCores);
  if (options.cores_per_device < 0 || options.cores_per_device > most_cores) {
    ThrowInvalidArgument(fmt::format(
        "cores_per_device is {}, and this process may use {} cores; expected 1 to {}, or 0 to "
        "divide all cores among the devices",
        options.cores_per_device, UsableCores(), most_cores));
  }
  auto worker = std::make_shared<LocalWorker>(options.job, options.task, options.devices,
                                              CoresPerDevice(options), options.communicator);
  state_ = std::make_unique<State>(
      graph, std::make_unique<LocalMaster>(std::move(worker),
                                           CompileOptions{.optimize = options.optimize}));
  Await([&](auto done) { state_->master->Create(graph, done); });
}

Session::~Session() = default;

void Session::RunInto(std::span<const Feed> feeds, std::span<const Output> fetches,
                      std::span<const Node* const> targets, std::span<Tensor> results,
                      const RunOptions& options) {
  // Feeds split into two lists, on the stack unless there are very many.
  constexpr size_t kFew = 32;
  std::array<Output, kFew> few_outputs;
  std::array<const Tensor*, kFew> few_values;
  std::vector<Output> many_outputs;
  std::vector<const Tensor*> many_values;
  Output* outputs = few_outputs.data();
  const Tensor** values = few_values.data();
  if (feeds.size() > kFew) {
    many_outputs.resize(feeds.size());
    many_values.resize(feeds.size());
    outputs = many_outputs.data();
    values = many_values.data();
  }
  for (size_t i = 0; i < feeds.size(); ++i) {
    outputs[i] = feeds[i].first;
    values[i] = &feeds[i].second;
  }
  StepTrace trace;
  if (options.trace && options.trace_result == nullptr) {
    ThrowInvalidArgument(
        "RunOptions::trace is set without a trace_result; give the RunTrace that is to be filled");
  }
  const MasterRunRequest request{.feeds = {outputs, feeds.size()},
                                 .feed_values = {values, feeds.size()},
                                 .fetches = fetches,
                                 .targets = targets,
                                 .results = results,
                                 .timeout_nanos = options.timeout.count(),
                                 .trace = options.trace ? &trace : nullptr};
  if (results.size() != fetches.size()) {
    ThrowInvalidArgument(
        fmt::format("{} results given for {} fetches", results.size(), fetches.size()));
  }
  Await([&](auto done) { state_->master->Run(request, done); });
  if (!options.trace) return;
  options.trace_result->arena_bytes = trace.arena_bytes;
  options.trace_result->peaks.clear();
  for (PeakRecord& peak : trace.peaks) {
    PeakTrace& to = options.trace_result->peaks.emplace_back();
    to.device = std::move(peak.device);
    to.node = std::move(peak.node);
    for (auto& [name, bytes] : peak.values) to.values.push_back({std::move(name), bytes});
  }
  options.trace_result->nodes.clear();
  for (NodeRecord& node : trace.nodes) {
    options.trace_result->nodes.push_back({std::move(node.name), std::move(node.op),
                                           std::move(node.device), node.start_nanos, node.end_nanos,
                                           node.bytes});
  }
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
  }
  ThrowIfError(writer.Write(path));
}

void Session::Close() {
  Await([&](auto done) { state_->master->Close(done); });
}

}  // namespace tutti
