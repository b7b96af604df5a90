#include "tutti/train/checkpoints/warm_start.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr std::string_view kGlobalStep = "global_step";

using Tensors = std::map<std::string_view, const checkpoint::SavedTensor*>;

Tensors TensorsOf(const checkpoint::Manifest& manifest) {
  Tensors tensors;
  for (const checkpoint::SavedTensor& tensor : manifest.tensors) tensors[tensor.name] = &tensor;
  return tensors;
}

std::string Describe(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", NameOf(dtype), shape.ToString());
}

// Why the variable cannot take the tensor; empty if it can.
std::string WhyNot(const SavedName& variable, const std::string& name, const Tensors& tensors) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) {
    return name == variable.name ? "not there" : fmt::format("there is no \"{}\"", name);
  }
  const checkpoint::SavedTensor& tensor = *found->second;
  if (tensor.dtype == variable.variable.dtype() && variable.whole.CompatibleWith(tensor.whole)) {
    return "";
  }
  return fmt::format("{} here, {} there", Describe(variable.variable.dtype(), variable.whole),
                     Describe(tensor.dtype, tensor.whole));
}

}  // namespace

NameMap::NameMap(std::string_view text) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    const std::string_view fresh = pair.substr(0, equals);
    const std::string_view old = equals == pair.npos ? "" : pair.substr(equals + 1);
    const auto stars = [](std::string_view name) {
      return name.find('*') == name.npos || name.find('*') == name.size() - 1;
    };
    if (fresh.empty() || old.empty() || !stars(fresh) || !stars(old) ||
        fresh.ends_with('*') != old.ends_with('*')) {
      ThrowInvalidArgument(
          fmt::format("the map of names has \"{}\"; expected NEW=OLD, with a star at the end of "
                      "both names or of none",
                      pair));
    }
    pairs_.emplace_back(fresh, old);
  }
}

std::string NameMap::OldName(const std::string& name) const {
  for (const auto& [fresh, old] : pairs_) {
    if (fresh == name) return old;
    if (!fresh.ends_with('*')) continue;
    const size_t common = fresh.size() - 1;
    if (name.compare(0, common, fresh, 0, common) == 0) {
      return old.substr(0, old.size() - 1) + name.substr(common);
    }
  }
  return name;
}

WarmStart PlanWarmStart(std::span<const SavedName> variables, const checkpoint::Manifest& manifest,
                        const NameMap& map) {
  const Tensors tensors = TensorsOf(manifest);
  WarmStart plan;
  std::set<std::string> used;
  for (const SavedName& variable : variables) {
    if (!variable.slot_of.empty() || variable.name == kGlobalStep) continue;
    const std::string old = map.OldName(variable.name);
    if (const std::string why = WhyNot(variable, old, tensors); !why.empty()) {
      plan.missing.push_back(fmt::format("{}: {}", variable.name, why));
      continue;
    }
    plan.taken.push_back(variable);
    plan.names.push_back(old);
    used.insert(old);
  }
  for (const auto& [name, tensor] : tensors) {
    if (!tensor->slot_of.empty() || name == kGlobalStep || used.contains(std::string(name)))
      continue;
    plan.left_over.emplace_back(name);
  }
  return plan;
}

std::vector<std::string> ModelDifferences(std::span<const SavedName> variables,
                                          const checkpoint::Manifest& manifest, bool whole,
                                          size_t most) {
  const Tensors tensors = TensorsOf(manifest);
  std::vector<std::string> differences;
  std::set<std::string_view> known;
  std::set<std::string_view> different;
  for (const SavedName& variable : variables) {
    known.insert(variable.name);
    const std::string why = WhyNot(variable, variable.name, tensors);
    // A slot is like its variable.
    if (why.empty() || different.contains(variable.slot_of)) continue;
    different.insert(variable.name);
    differences.push_back(fmt::format("\"{}\": {}", variable.name, why));
  }
  for (const auto& [name, tensor] : tensors) {
    if (whole && !known.contains(name)) {
      differences.push_back(
          fmt::format("\"{}\": {} there, not here", name, Describe(tensor->dtype, tensor->whole)));
    }
  }
  if (differences.size() > most) {
    const size_t more = differences.size() - most;
    differences.resize(most);
    differences.push_back(fmt::format("and {} more", more));
  }
  return differences;
}

}  // namespace tutti
