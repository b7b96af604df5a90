// How a placed program is cut. Every edge between devices becomes a Send and a Recv, but for what
// costs less to compute again than to send. That is a constant or feed, what is made from small
// constants (Fill, Range, BroadcastTo), and a view of what is there already. Nothing else with
// state, effects or control edges is repeated.
//
// A Recv is put right before the first node of its device that reads the value. The value travels
// as soon as it is sent, whether the Recv has started or not, so a later Recv stalls nobody; and
// one that starts earlier than its reader would only hold memory of the plan for longer.
#include "tutti/compile/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

constexpr int64_t kSmallBytes = 4096;  // of all inputs of a node that is computed again
constexpr int kMostRepeated = 4;       // such nodes one behind the other

// One walk over the nodes in topological order. Every node is added to its device's graph; an input
// that lives elsewhere is sent from there (the producer was added already, so the Send can follow
// it at once) and received here. Constants and feeds are not sent: each device that needs one has
// its own copy, which comes with the program, or with the request that starts a step.
class Cutter {
 public:
  Cutter(const Program& program, std::span<const DeviceInfo> devices) : program_(program) {
    for (const DeviceInfo& device : devices) {
      parts_.push_back({device.name, {}, {}, {}});
      parts_.back().program.memory.arenas = program.memory.arenas;
      by_name_[device.name] = parts_.size() - 1;
      types_.push_back(device.type);
    }
    local_.resize(parts_.size());
    received_.resize(parts_.size());
    control_.resize(parts_.size());
  }

  absl::StatusOr<std::vector<Partition>> Run() {
    const std::unordered_set<const Node*> at_home = NeededAtHome();
    for (const auto& node : program_.graph->nodes()) {
      if (IsRepeated(*node) && !at_home.contains(node.get())) continue;
      TUTTI_RETURN_IF_ERROR(Add(*node, PartOf(*node)).status());
    }
    for (size_t i = 0; i < program_.fetches.size(); ++i) {
      const Output fetch = program_.fetches[i];
      const size_t part = PartOf(*fetch.node);
      TUTTI_ASSIGN_OR_RETURN(const Output here, Here(fetch, part));
      parts_[part].program.fetches.push_back(here);
      parts_[part].fetch_index.push_back(int(i));
    }
    for (const Node* target : program_.targets) {
      const size_t part = PartOf(*target);
      TUTTI_ASSIGN_OR_RETURN(const Node* here, ControlHere(*target, part));
      parts_[part].program.targets.push_back(here);
    }
    for (size_t i = 0; i < program_.feeds.size(); ++i) {
      for (size_t part = 0; part < parts_.size(); ++part) {
        const auto it = local_[part].find(program_.feeds[i].node);
        if (it == local_[part].end()) continue;
        parts_[part].program.feeds.push_back(it->second->output(program_.feeds[i].index));
        parts_[part].feed_index.push_back(int(i));
      }
    }
    for (const auto& [part, node] : sends_) parts_[part].program.targets.push_back(node);
    // A part may have nothing but what was repeated elsewhere.
    std::erase_if(parts_, [](const Partition& part) {
      return part.program.fetches.empty() && part.program.targets.empty();
    });
    return std::move(parts_);
  }

 private:
  size_t PartOf(const Node& node) const { return by_name_.at(node.device()); }
  // Added wherever it is needed, and only there.
  static bool IsRepeated(const Node& node) {
    return node.def().source && node.inputs().empty() && node.control_inputs().empty();
  }

  // Nodes that are repeated, and needed on their own device as well: they keep their places there.
  std::unordered_set<const Node*> NeededAtHome() const {
    std::unordered_set<const Node*> needed;
    const auto need = [&](const Node& node, size_t part) {
      if (IsRepeated(node) && PartOf(node) == part) needed.insert(&node);
    };
    for (const auto& node : program_.graph->nodes()) {
      const size_t part = PartOf(*node);
      for (const Output& input : node->inputs()) need(*input.node, part);
      for (const Node* before : node->control_inputs()) need(*before, part);
    }
    for (const Output& fetch : program_.fetches) need(*fetch.node, PartOf(*fetch.node));
    for (const Node* target : program_.targets) need(*target, PartOf(*target));
    return needed;
  }

  absl::StatusOr<const Node*> Add(const Node& node, size_t part) {
    NodeSpec spec = node.spec();
    spec.device = parts_[part].device;
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
    return copy;
  }

  // The copy of a node on a device that has it, or may repeat it.
  absl::StatusOr<const Node*> LocalNode(const Node& node, size_t part) {
    const auto it = local_[part].find(&node);
    return it == local_[part].end() ? Add(node, part) : it->second;
  }

  absl::StatusOr<Output> Here(Output output, size_t part) {
    const size_t from = PartOf(*output.node);
    if (from == part || IsRepeated(*output.node) || local_[part].contains(output.node) ||
        IsCheap(*output.node, part, kMostRepeated)) {
      TUTTI_ASSIGN_OR_RETURN(const Node* here, LocalNode(*output.node, part));
      return here->output(output.index);
    }
    if (const auto it = received_[part].find(output); it != received_[part].end())
      return it->second;
    const Output there = local_[from].at(output.node)->output(output.index);
    TUTTI_ASSIGN_OR_RETURN(Node * recv, Transfer(there, {}, output.name(), from, part));
    return received_[part][output] = recv->output();
  }

  // Is it better computed once more on this device than sent there?
  bool IsCheap(const Node& node, size_t part, int depth) const {
    const OpDef& def = node.def();
    if (depth == 0 || types_[PartOf(node)] != types_[part] || !node.control_inputs().empty() ||
        def.source || def.stateful || def.async || def.transfer || def.has_subgraphs() ||
        node.num_inputs() == 0 || (!def.view && !HasSmallInputs(node))) {
      return false;
    }
    return std::all_of(node.inputs().begin(), node.inputs().end(), [&](const Output& input) {
      const Node& from = *input.node;
      if (from.op() == "Constant" && IsRepeated(from)) return true;
      // Of a node that had to receive its input at home, the Recv there would be left over.
      const bool local_at_home = PartOf(from) == PartOf(node) || IsRepeated(from);
      const bool here = PartOf(from) == part || IsRepeated(from) || local_[part].contains(&from) ||
                        received_[part].contains(input);
      return local_at_home && ((def.view && here) || IsCheap(from, part, depth - 1));
    });
  }

  static bool HasSmallInputs(const Node& node) {
    int64_t bytes = 0;
    for (const Output& input : node.inputs()) {
      const int64_t elements = input.shape().elements();
      if (elements < 0 || elements > kSmallBytes) return false;
      bytes += elements * int64_t(SizeOf(input.dtype()));
    }
    return bytes <= kSmallBytes;
  }

  absl::StatusOr<const Node*> ControlHere(const Node& before, size_t part) {
    const size_t from = PartOf(before);
    if (from == part || IsRepeated(before)) return LocalNode(before, part);
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
  std::vector<std::string> types_;  // by part
  std::vector<std::unordered_map<const Node*, const Node*>> local_;
  std::vector<std::unordered_map<Output, Output, OutputHash>> received_;
  std::vector<std::unordered_map<const Node*, const Node*>> control_;
  std::vector<std::pair<size_t, const Node*>> sends_;
};

}  // namespace

absl::StatusOr<std::vector<Partition>> CutByDevice(const Program& program,
                                                   std::span<const DeviceInfo> devices) {
  TUTTI_ASSIGN_OR_RETURN(std::vector<Partition> parts, Cutter(program, devices).Run());
  TUTTI_RETURN_IF_ERROR(CheckTransfers(parts));
  return parts;
}

absl::Status CheckTransfers(std::span<const Partition> parts) {
  struct End {
    const Node* node = nullptr;
    const Partition* part = nullptr;
    ValueType type;
  };
  std::unordered_map<std::string, End> sends, receives;
  for (const Partition& part : parts) {
    for (const auto& node : part.program.graph->nodes()) {
      if (!node->def().transfer) continue;
      const bool send = node->op() == "Send";
      const ValueType type = send ? node->input(0).node->type(node->input(0).index) : node->type(0);
      const std::string& key = node->attr<std::string>("key");
      auto& ends = send ? sends : receives;
      if (!ends.try_emplace(key, End{node.get(), &part, type}).second) {
        return Internal("{} on {}: there is another {} for \"{}\"", node->Describe(), part.device,
                        node->op(), key);
      }
    }
  }
  for (const auto& [key, receive] : receives) {
    const auto send = sends.find(key);
    if (send == sends.end()) {
      return Internal("{} on {} waits for \"{}\", which no part sends", receive.node->Describe(),
                      receive.part->device, key);
    }
    const End& from = send->second;
    if (!key.starts_with(fmt::format("{};{};", from.part->device, receive.part->device)) ||
        from.type.dtype != receive.type.dtype ||
        !from.type.shape.CompatibleWith(receive.type.shape)) {
      return Internal("{} on {} sends {} {} under \"{}\", and {} on {} waits there for {} {}",
                      from.node->Describe(), from.part->device, NameOf(from.type.dtype),
                      from.type.shape.ToString(), key, receive.node->Describe(),
                      receive.part->device, NameOf(receive.type.dtype),
                      receive.type.shape.ToString());
    }
  }
  for (const auto& [key, send] : sends) {
    if (receives.contains(key)) continue;
    return Internal("{} on {} sends \"{}\", which no part receives", send.node->Describe(),
                    send.part->device, key);
  }
  return absl::OkStatus();
}

}  // namespace tutti
