#include "tutti/runtime/measure/timed_graph.h"

#include <algorithm>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/clock.h"
#include "tutti/graph/build.h"
#include "tutti/runtime/local_master.h"

namespace tutti {

TimedGraph::TimedGraph(WorkersByTask workers, std::string home, std::vector<std::string> devices)
    : devices_(std::move(devices)),
      master_(std::make_unique<LocalMaster>(std::move(workers), std::move(home),
                                            CompileOptions{.optimize = false})) {}
TimedGraph::~TimedGraph() = default;
TimedGraph::TimedGraph(TimedGraph&&) noexcept = default;

absl::StatusOr<Output> TimedGraph::Feed(const Shape& shape) {
  NodeSpec spec;
  spec.op = "Placeholder";
  spec.attrs = {{"dtype", kFloat32}, {"shape", shape}};
  TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(*graph_, std::move(spec)));
  Tensor value(kFloat32, shape);
  std::fill(value.values<float>().begin(), value.values<float>().end(), 0.5f);
  request_.feeds.push_back({node->id(), 0});
  request_.feed_values.push_back(std::move(value));
  return node->output();
}

absl::StatusOr<TimedGraph::Outputs> TimedGraph::FeedAll(const Shape& shape) {
  Outputs all;
  for (size_t d = 0; d < devices_.size(); ++d) {
    TUTTI_ASSIGN_OR_RETURN(const Output one, Feed(shape));
    all.push_back(one);
  }
  return all;
}

absl::StatusOr<const Node*> TimedGraph::Add(const std::string& op, std::vector<Output> inputs,
                                            const AttrList& attrs, int device) {
  NodeSpec spec;
  spec.op = op;
  spec.inputs = std::move(inputs);
  spec.attrs = attrs;
  spec.device = devices_[size_t(device)];
  TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(*graph_, std::move(spec)));
  request_.targets.push_back(node->id());
  return node;
}

absl::StatusOr<const Node*> TimedGraph::AddAll(const std::string& op,
                                               const std::vector<Outputs>& inputs,
                                               const AttrList& attrs) {
  const Node* first = nullptr;
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::vector<Output> own;
    for (const Outputs& input : inputs) own.push_back(input[d]);
    TUTTI_ASSIGN_OR_RETURN(const Node* node, Add(op, std::move(own), attrs, int(d)));
    if (first == nullptr) first = node;
    first_[node->name()] = first->name();
  }
  return first;
}

absl::StatusOr<TimedGraph::Outputs> TimedGraph::AddShapes(const Outputs& values) {
  Outputs shapes;
  for (size_t d = 0; d < values.size(); ++d) {
    TUTTI_ASSIGN_OR_RETURN(const Node* node, Add("Shape", {values[d]}, {}, int(d)));
    shapes.push_back(node->output());
  }
  return shapes;
}

absl::Status TimedGraph::Run() {
  Awaited<absl::Status> created;
  master_->Create(*graph_, [&](absl::Status status) { created.Set(std::move(status)); });
  TUTTI_RETURN_IF_ERROR(created.Wait());
  for (int run = 0; run <= kRuns; ++run) {
    MasterRunRequest request = request_;
    request.step = run;
    request.timeout_nanos = kMostNanos;
    request.trace = true;
    request.caller_waits = true;
    Awaited<RunResponse> answer;
    const int64_t start = NowNanos();
    master_->Run(std::move(request), [&](RunResponse&& r) { answer.Set(std::move(r)); });
    const RunResponse response = answer.Wait();
    TUTTI_RETURN_IF_ERROR(response.status);
    if (run == 0) continue;  // it compiles and fills caches
    step_ = std::min(step_, double(NowNanos() - start) * 1e-9);
    std::map<std::string, double> means;
    for (const NodeRecord& node : response.trace->nodes) {
      const auto first = first_.find(node.name);
      if (first == first_.end()) continue;
      means[first->second] +=
          double(node.end_nanos - node.start_nanos) * 1e-9 / double(devices_.size());
    }
    for (const auto& [name, seconds] : means) {
      const auto [it, fresh] = best_.try_emplace(name, seconds);
      if (!fresh) it->second = std::min(it->second, seconds);
    }
  }
  return absl::OkStatus();
}

double TimedGraph::Of(const Node& node) const {
  const auto it = best_.find(node.name());
  return it == best_.end() ? 0 : it->second;
}

}  // namespace tutti
