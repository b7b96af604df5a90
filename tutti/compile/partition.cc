#include "tutti/compile/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tutti/graph/build.h"

namespace tutti {
namespace {

// One walk over the nodes in topological order. Every node is added to its device's graph; an input
// that lives elsewhere is sent from there (the producer was added already, so the Send can follow
// it at once) and received here.
class Cutter {
 public:
  Cutter(const Program& program, std::span<const DeviceInfo> devices) : program_(program) {
    for (const DeviceInfo& device : devices) {
      parts_.push_back({device.name, {}, {}, {}});
      parts_.back().program.memory.arenas = program.memory.arenas;
      by_name_[device.name] = parts_.size() - 1;
    }
    local_.resize(parts_.size());
    received_.resize(parts_.size());
    control_.resize(parts_.size());
  }

  absl::StatusOr<std::vector<Partition>> Run() {
    for (const auto& node : program_.graph->nodes()) TUTTI_RETURN_IF_ERROR(Add(*node));
    for (size_t i = 0; i < program_.feeds.size(); ++i) {
      Partition& part = parts_[PartOf(*program_.feeds[i].node)];
      part.program.feeds.push_back(LocalOutput(program_.feeds[i]));
      part.feed_index.push_back(int(i));
    }
    for (size_t i = 0; i < program_.fetches.size(); ++i) {
      Partition& part = parts_[PartOf(*program_.fetches[i].node)];
      part.program.fetches.push_back(LocalOutput(program_.fetches[i]));
      part.fetch_index.push_back(int(i));
    }
    for (const Node* target : program_.targets) {
      const size_t part = PartOf(*target);
      parts_[part].program.targets.push_back(local_[part].at(target));
    }
    for (const auto& [part, node] : sends_) parts_[part].program.targets.push_back(node);
    std::erase_if(parts_, [](const Partition& part) { return part.program.graph->size() == 0; });
    return std::move(parts_);
  }

 private:
  size_t PartOf(const Node& node) const { return by_name_.at(node.device()); }
  Output LocalOutput(Output output) const {
    return local_[PartOf(*output.node)].at(output.node)->output(output.index);
  }

  absl::Status Add(const Node& node) {
    const size_t part = PartOf(node);
    NodeSpec spec = node.spec();
    for (Output& input : spec.inputs) {
      TUTTI_ASSIGN_OR_RETURN(input, Here(input, part));
    }
    std::vector<const Node*> control;
    for (const Node* before : node.control_inputs()) {
      TUTTI_ASSIGN_OR_RETURN(const Node* here, ControlHere(*before, part));
      control.push_back(here);
    }
    spec.control_inputs = std::move(control);
    Program& program = parts_[part].program;
    TUTTI_ASSIGN_OR_RETURN(const Node* copy, AddNode(*program.graph, std::move(spec)));
    program.memory.CopyNode(program_.memory, node, *copy);
    local_[part][&node] = copy;
    return absl::OkStatus();
  }

  absl::StatusOr<Output> Here(Output output, size_t part) {
    const size_t from = PartOf(*output.node);
    if (from == part) return LocalOutput(output);
    if (const auto it = received_[part].find(output); it != received_[part].end())
      return it->second;
    TUTTI_ASSIGN_OR_RETURN(Node * recv,
                           Transfer(LocalOutput(output), {}, output.name(), from, part));
    return received_[part][output] = recv->output();
  }

  absl::StatusOr<const Node*> ControlHere(const Node& before, size_t part) {
    const size_t from = PartOf(before);
    if (from == part) return local_[part].at(&before);
    if (const auto it = control_[part].find(&before); it != control_[part].end()) return it->second;
    NodeSpec token;
    token.op = "Constant";
    token.name = parts_[from].program.graph->UniqueName(before.name() + ".token");
    token.device = parts_[from].device;
    token.attrs = {{"value", Tensor::Zeros(kUInt8, Shape{0})}};
    TUTTI_ASSIGN_OR_RETURN(Node * constant, AddNode(*parts_[from].program.graph, std::move(token)));
    // No output has such a name: what stands behind the colon is a number there.
    TUTTI_ASSIGN_OR_RETURN(Node * recv, Transfer(constant->output(), {local_[from].at(&before)},
                                                 before.name() + ":done", from, part));
    return control_[part][&before] = recv;
  }

  // A Send of `value` on device `from` and its Recv on device `to`; returns the Recv.
  absl::StatusOr<Node*> Transfer(Output value, std::vector<const Node*> after,
                                 const std::string& name, size_t from, size_t to) {
    const std::string& source = parts_[from].device;
    const std::string& destination = parts_[to].device;
    const std::string key = fmt::format("{};{};{}", source, destination, name);
    std::string base = name;
    std::replace(base.begin(), base.end(), ':', '.');
    NodeSpec send;
    send.op = "Send";
    send.name = parts_[from].program.graph->UniqueName(base + ".send");
    send.inputs = {value};
    send.control_inputs = std::move(after);
    send.attrs = {{"key", key}};
    send.device = source;
    TUTTI_ASSIGN_OR_RETURN(Node * sender, AddNode(*parts_[from].program.graph, std::move(send)));
    sends_.emplace_back(from, sender);
    NodeSpec recv;
    recv.op = "Recv";
    recv.name = parts_[to].program.graph->UniqueName(base + ".recv");
    recv.attrs = {{"dtype", value.dtype()}, {"key", key}, {"shape", value.shape()}};
    recv.device = destination;
    return AddNode(*parts_[to].program.graph, std::move(recv));
  }

  const Program& program_;
  std::vector<Partition> parts_;
  std::unordered_map<std::string, size_t> by_name_;
  std::vector<std::unordered_map<const Node*, const Node*>> local_;
  std::vector<std::unordered_map<Output, Output, OutputHash>> received_;
  std::vector<std::unordered_map<const Node*, const Node*>> control_;
  std::vector<std::pair<size_t, const Node*>> sends_;
};

}  // namespace

absl::StatusOr<std::vector<Partition>> CutByDevice(const Program& program,
                                                   std::span<const DeviceInfo> devices) {
  return Cutter(program, devices).Run();
}

}  // namespace tutti
