#include "tutti/compile/place.h"

#include <fmt/format.h>

#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

absl::StatusOr<Device*> FindDevice(const Node& node, std::span<Device* const> devices) {
  if (node.device().empty()) return devices.front();
  auto wanted = DeviceName::Parse(node.device());
  if (!wanted.ok()) return WithPrefix(wanted.status(), node.Describe() + ": ");
  for (Device* device : devices) {
    if (wanted->Matches(device->parsed_name())) return device;
  }
  std::string there;
  for (Device* device : devices) there += (there.empty() ? "" : ", ") + device->name();
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

absl::StatusOr<Program> Place(const Program& program, std::span<Device* const> devices) {
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    TUTTI_ASSIGN_OR_RETURN(Device * device, FindDevice(*node, devices));
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    if (const Node* state = StateOf(*node)) {
      const std::string& home = copy.Mapped(state->output()).node->device();
      if (!node->device().empty() && home != device->name()) {
        auto wanted = DeviceName::Parse(node->device());
        auto lives = DeviceName::Parse(home);
        if (wanted.ok() && lives.ok() && !wanted->Matches(*lives)) {
          return InvalidArgument("{} asks for device \"{}\", but {} lives on {}, where it must run",
                                 node->Describe(), node->device(), state->Describe(), home);
        }
      }
      spec.device = home;
    } else {
      spec.device = device->name();
    }
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  return copy.Finish();
}

}  // namespace tutti
