// How nodes get their devices. Some nodes follow another node: an op on a variable or queue follows
// that, a colocated node follows the node it names, a look-up of rows follows its table. A chain of
// such nodes ends at a node that follows none, whose requested device is used. The request of a
// following node is only checked, so that the device of a variable does not depend on the other
// nodes of the step.
#include "tutti/compile/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/graph/find_within.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

struct Candidate {
  std::string name;
  DeviceName parsed;
};

absl::StatusOr<std::vector<Candidate>> Candidates(std::span<const DeviceInfo> devices) {
  std::vector<Candidate> candidates;
  for (const DeviceInfo& device : devices) {
    TUTTI_ASSIGN_OR_RETURN(DeviceName parsed, DeviceName::Parse(device.name));
    candidates.push_back({device.name, std::move(parsed)});
  }
  return candidates;
}

// " (model.cc:12)": who set a node's wish; nothing where that is not known.
std::string SetAt(const Node& node) {
  const std::source_location& at = node.spec().placed_at;
  if (at.line() == 0) return "";
  const std::string_view file = at.file_name();
  return fmt::format(" ({}:{})", file.substr(file.rfind('/') + 1), at.line());
}

class Placer {
 public:
  Placer(const Graph& graph, std::vector<Candidate> candidates, const PlaceOptions& options)
      : graph_(graph),
        candidates_(std::move(candidates)),
        options_(options),
        device_(size_t(graph.size()), kNone),
        leader_(size_t(graph.size()), nullptr),
        allowed_(size_t(graph.size())) {}

  // The device of every node, by id.
  absl::Status Run() {
    for (const auto& node : graph_.nodes()) TUTTI_RETURN_IF_ERROR(Settle(*node));
    for (const auto& node : graph_.nodes()) TUTTI_RETURN_IF_ERROR(Check(*node));
    return absl::OkStatus();
  }
  const std::string& DeviceOf(const Node& node) const {
    return candidates_[size_t(device_[size_t(node.id())])].name;
  }
  PlaceRules TakeRules() { return {std::move(leader_), std::move(allowed_)}; }

 private:
  static constexpr int kNone = -1, kOnTheWay = -2;

  // The node that this one follows; null: none.
  absl::StatusOr<const Node*> Followed(const Node& node) const {
    if (const Node* state = StateOf(node)) return state;
    if (!node.colocated_with().empty()) return ColocatedNode(node);
    return node.device().empty() ? TableOf(node) : nullptr;
  }

  // The variable whose rows the node looks up; null: it does not.
  static const Node* TableOf(const Node& node) {
    if (node.op() != "Gather" || node.attr<int64_t>("axis") != 0) return nullptr;
    const Node* const table = node.input(0).node;
    return table->op() == "Variable" ? table : nullptr;
  }

  absl::StatusOr<const Node*> ColocatedNode(const Node& node) const {
    const std::string_view name = node.colocated_with();
    if (name.empty()) return static_cast<const Node*>(nullptr);
    const Node* const colocated = graph_.Find(name);
    if (colocated != nullptr) return colocated;
    return InvalidArgument("{} is colocated with \"{}\"{}, but the graph has no such node",
                           node.Describe(), name, SetAt(node));
  }

  // Follows from node to node, without recursion, to one whose device is known or that follows
  // nobody.
  absl::Status Settle(const Node& node) {
    path_.clear();
    int device = kNone;
    const Node* leader = nullptr;
    for (const Node* at = &node; device < 0;) {
      int& mark = device_[size_t(at->id())];
      if (mark == kOnTheWay) return Circle(path_, *at);
      device = mark;
      leader = leader_[size_t(at->id())];
      if (device >= 0) break;
      mark = kOnTheWay;
      path_.push_back(at);
      TUTTI_ASSIGN_OR_RETURN(const Node* next, Followed(*at));
      if (next == nullptr) {
        TUTTI_ASSIGN_OR_RETURN(device, FindDevice(*at));
        leader = at;
      } else {
        at = next;
      }
    }
    for (const Node* member : path_) {
      device_[size_t(member->id())] = device;
      leader_[size_t(member->id())] = leader;
    }
    return absl::OkStatus();
  }

  static absl::Status Circle(std::span<const Node* const> path, const Node& closing) {
    std::string names;
    bool inside = false;
    for (const Node* node : path) {
      inside = inside || node == &closing;
      if (inside) names += fmt::format("{}{} with ", node->Describe(), SetAt(*node));
    }
    return InvalidArgument("nodes are colocated in a circle: {}\"{}\"", names, closing.name());
  }

  // The device that a node which follows nobody asks for, by itself or in its bodies.
  absl::StatusOr<int> FindDevice(const Node& node) {
    std::vector<int>& allowed = allowed_[size_t(node.id())];
    const Node* before = nullptr;  // the last that asked for something
    absl::Status status;
    const auto narrow = [&](const Node& asking) {
      if (!asking.device().empty()) {
        status = Narrow(asking, node, before, allowed);
        before = &asking;
      }
      return !status.ok();
    };
    if (!node.def().has_subgraphs()) {
      narrow(node);
    } else {
      FindWithin(node, narrow);
    }
    TUTTI_RETURN_IF_ERROR(status);
    return allowed.empty() ? 0 : allowed.front();
  }

  // Leaves of the allowed devices those that `asking`, the node itself or one of its bodies, asks
  // for.
  absl::Status Narrow(const Node& asking, const Node& node, const Node* before,
                      std::vector<int>& allowed) {
    TUTTI_ASSIGN_OR_RETURN(const DeviceName wanted, Parsed(asking));
    std::vector<int> matching;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (wanted.Matches(candidates_[i].parsed)) matching.push_back(int(i));
    }
    if (matching.empty()) {
      return Refuse(node,
                    fmt::format("{} {}; there are: {}", asking.Describe(), WishOf(asking), There()),
                    candidates_[size_t(allowed.empty() ? 0 : allowed.front())]);
    }
    if (allowed.empty()) {
      allowed = std::move(matching);
      return absl::OkStatus();
    }
    std::vector<int> both;
    std::set_intersection(allowed.begin(), allowed.end(), matching.begin(), matching.end(),
                          std::back_inserter(both));
    if (both.empty()) {
      return Refuse(
          node,
          fmt::format("{} stays whole on one device, but {} {}, and {} {}", node.Describe(),
                      before->Describe(), WishOf(*before), asking.Describe(), WishOf(asking)),
          candidates_[size_t(allowed.front())]);
    }
    allowed = std::move(both);
    return absl::OkStatus();
  }

  std::string There() const {
    std::string there;
    for (const Candidate& candidate : candidates_) {
      there += (there.empty() ? "" : ", ") + candidate.name;
    }
    return there;
  }

  // Does what the node itself asks for agree with where it follows others to?
  absl::Status Check(const Node& node) {
    const Candidate& home = candidates_[size_t(device_[size_t(node.id())])];
    const Node* const state = StateOf(node);
    TUTTI_ASSIGN_OR_RETURN(const Node* colocated, ColocatedNode(node));
    if (state != nullptr && colocated != nullptr && DeviceOf(*colocated) != home.name) {
      TUTTI_RETURN_IF_ERROR(
          Refuse(node,
                 fmt::format(
                     "{} is colocated with {}{}, which is on {}, but {} lives on {}, where it must "
                     "run",
                     node.Describe(), colocated->Describe(), SetAt(node), DeviceOf(*colocated),
                     state->Describe(), home.name),
                 home));
    }
    if (node.device().empty() || (state == nullptr && colocated == nullptr)) {
      return absl::OkStatus();
    }
    TUTTI_ASSIGN_OR_RETURN(const DeviceName wanted, Parsed(node));
    if (wanted.Matches(home.parsed)) return absl::OkStatus();
    const std::string why =
        state != nullptr
            ? fmt::format("{} lives on {}, where it must run", state->Describe(), home.name)
            : fmt::format("it is colocated with {}, which is on {}", colocated->Describe(),
                          home.name);
    return Refuse(node, fmt::format("{} {}, but {}", node.Describe(), WishOf(node), why), home);
  }

  static absl::StatusOr<DeviceName> Parsed(const Node& node) {
    auto wanted = DeviceName::Parse(node.device());
    if (wanted.ok()) return wanted;
    return WithPrefix(wanted.status(), fmt::format("{}{}: ", node.Describe(), SetAt(node)));
  }

  absl::Status Refuse(const Node& node, const std::string& why, const Candidate& instead) const {
    if (!options_.soft) return InvalidArgument("{}", why);
    if (options_.fell_back) {
      options_.fell_back(node, fmt::format("{}; it goes to {}", why, instead.name));
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const std::vector<Candidate> candidates_;
  const PlaceOptions& options_;
  std::vector<int> device_;                // by id: which candidate
  std::vector<const Node*> leader_;        // by id: whose device it gets
  std::vector<std::vector<int>> allowed_;  // by id, of leaders
  std::vector<const Node*> path_;
};

}  // namespace

std::string WishOf(const Node& node) {
  return fmt::format("asks for device \"{}\"{}", node.device(), SetAt(node));
}

const Node* StateOf(const Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.def().IsVariableInput(i)) return node.input(i).node;
  }
  return nullptr;
}

absl::StatusOr<PlaceRules> FindRules(const Program& program, std::span<const DeviceInfo> devices,
                                     const PlaceOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(devices));
  Placer placer(*program.graph, std::move(candidates), options);
  TUTTI_RETURN_IF_ERROR(placer.Run());
  return placer.TakeRules();
}

absl::StatusOr<Program> Place(const Program& program, std::span<const DeviceInfo> devices,
                              const PlaceOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, Candidates(devices));
  Placer placer(*program.graph, std::move(candidates), options);
  TUTTI_RETURN_IF_ERROR(placer.Run());
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    spec.device = placer.DeviceOf(*node);
    std::erase_if(spec.attrs, [](const Attr& attr) { return attr.first == "_colocate"; });
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
