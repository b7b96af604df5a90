#include "tutti/compile/place.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tutti/device/device.h"
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

// The name of the device that the node asks for.
absl::StatusOr<std::string> FindDevice(const Node& node, std::span<const Candidate> candidates) {
  if (node.device().empty()) return candidates.front().name;
  auto wanted = DeviceName::Parse(node.device());
  if (!wanted.ok()) return WithPrefix(wanted.status(), node.Describe() + ": ");
  for (const Candidate& candidate : candidates) {
    if (wanted->Matches(candidate.parsed)) return candidate.name;
  }
  std::string there;
  for (const Candidate& candidate : candidates) {
    there += (there.empty() ? "" : ", ") + candidate.name;
  }
  return InvalidArgument("{} asks for device \"{}\"; there are: {}", node.Describe(), node.device(),
                         there);
}

// The node whose state this one works on: a Variable, or a queue and its like. Null when there is
// none.
const Node* StateOf(const Node& node) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (node.def().IsVariableInput(i)) return node.input(i).node;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Program> Place(const Program& program, std::span<const DeviceInfo> devices) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(devices));
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    TUTTI_ASSIGN_OR_RETURN(std::string device, FindDevice(*node, candidates));
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    if (const Node* state = StateOf(*node)) {
      const std::string& home = copy.Mapped(state->output()).node->device();
      if (!node->device().empty() && home != device) {
        auto wanted = DeviceName::Parse(node->device());
        auto lives = DeviceName::Parse(home);
        if (wanted.ok() && lives.ok() && !wanted->Matches(*lives)) {
          return InvalidArgument("{} asks for device \"{}\", but {} lives on {}, where it must run",
                                 node->Describe(), node->device(), state->Describe(), home);
        }
      }
      spec.device = home;
    } else {
      spec.device = std::move(device);
    }
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
