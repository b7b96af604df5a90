#include "tutti/train/checkpoints/saved_names.h"

#include <map>
#include <set>

#include "tutti/graph/ops/state.h"

namespace tutti {
namespace {

struct Part {
  std::string whole_name;
  Shape whole;
  int64_t first_row = 0;
};

// The parts of split variables, by the names of the parts.
std::map<std::string, Part> PartsOf(const Graph& graph) {
  std::map<std::string, Part> parts;
  for (const auto& node : graph.nodes()) {
    if (node->op() == "Variable" || !IsVariable(*node)) continue;
    int64_t row = 0;
    for (const Output& part : node->inputs()) {
      if (part.node->op() != "Variable" || part.shape().rank() < 1) continue;
      parts[part.node->name()] = {node->name(), node->type(0).shape, row};
      row += part.shape()[0];
    }
  }
  return parts;
}

// The longest beginning of `name`, ending before a slash, that `known` has; empty if there is none.
template <typename Known>
std::string KnownBeginning(const std::string& name, const Known& known) {
  for (size_t end = name.rfind('/'); end != std::string::npos && end > 0;
       end = name.rfind('/', end - 1)) {
    if (known.contains(name.substr(0, end))) return name.substr(0, end);
  }
  return "";
}

}  // namespace

std::vector<SavedName> SavedNames(const Graph& graph) {
  const std::map<std::string, Part> parts = PartsOf(graph);
  std::set<std::string> trainable;
  std::vector<SavedName> names;
  for (const auto& node : graph.nodes()) {
    if (node->op() != "Variable") continue;
    const std::string& own = node->name();
    SavedName saved = {node->output(), own, node->type(0).shape};
    const std::string part_name = parts.contains(own) ? own : KnownBeginning(own, parts);
    if (const auto part = parts.find(part_name); part != parts.end()) {
      const auto& [whole_name, whole, first_row] = part->second;
      saved.name = whole_name + own.substr(part_name.size());
      saved.whole = whole;
      saved.first_row = first_row;
    }
    if (node->attr<bool>("trainable")) {
      trainable.insert(saved.name);
    } else {
      saved.slot_of = KnownBeginning(saved.name, trainable);
    }
    names.push_back(std::move(saved));
  }
  return names;
}

}  // namespace tutti
