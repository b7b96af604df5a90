#include "tutti/device/kernel_registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/device/device.h"

namespace tutti {
namespace {

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(std::function<absl::Status(KernelContext&)> compute)
      : compute_(std::move(compute)) {}
  absl::Status Compute(KernelContext& context) override { return compute_(context); }

 private:
  std::function<absl::Status(KernelContext&)> compute_;
};

bool Overlap(const KernelDef& a, const KernelDef& b) {
  if (a.dtypes.empty() || b.dtypes.empty()) return a.dtypes.empty() && b.dtypes.empty();
  return std::any_of(a.dtypes.begin(), a.dtypes.end(), [&](DType dtype) {
    return std::find(b.dtypes.begin(), b.dtypes.end(), dtype) != b.dtypes.end();
  });
}

}  // namespace

KernelRegistry& KernelRegistry::Global() {
  static KernelRegistry* const registry = new KernelRegistry;
  return *registry;
}

void KernelRegistry::Add(KernelDef def) {
  auto& list = kernels_[{def.op, def.kind}];
  for (const KernelDef& other : list) TUTTI_CHECK(!Overlap(def, other));
  // Those for certain dtypes come before the one for all.
  list.insert(def.dtypes.empty() ? list.end() : list.begin(), std::move(def));
}

const KernelDef* KernelRegistry::FindExact(std::string_view op, std::string_view kind,
                                           DType dtype) const {
  const auto it = kernels_.find(std::pair<std::string, std::string>(op, kind));
  if (it == kernels_.end()) return nullptr;
  for (const KernelDef& def : it->second) {
    if (def.dtypes.empty() ||
        std::find(def.dtypes.begin(), def.dtypes.end(), dtype) != def.dtypes.end()) {
      return &def;
    }
  }
  return nullptr;
}

const KernelDef* KernelRegistry::Find(std::string_view op, std::string_view kind,
                                      DType dtype) const {
  if (const KernelDef* def = FindExact(op, kind, dtype)) return def;
  return kind == "cpu" ? FindExact(op, "ref", dtype) : nullptr;
}

std::string KernelRegistry::Describe(std::string_view op) const {
  std::string text;
  for (const auto& [key, list] : kernels_) {
    if (key.first != op) continue;
    if (!text.empty()) text += "; ";
    text += key.second + ":";
    for (const KernelDef& def : list) {
      if (def.dtypes.empty()) text += " all";
      for (const DType dtype : def.dtypes) text += fmt::format(" {}", NameOf(dtype));
    }
  }
  return text.empty() ? "none" : text;
}

DType KernelDType(const Node& node) {
  if (node.num_inputs() > 0) return node.input(0).dtype();
  return node.num_outputs() > 0 ? node.type(0).dtype : DType::kInvalid;
}

void AddFunctionKernel(KernelRegistry& registry, std::string_view op, std::string_view kind,
                       std::function<absl::Status(KernelContext&)> compute,
                       std::vector<DType> dtypes, std::vector<std::pair<int, int>> in_place) {
  registry.Add({.op = std::string(op),
                .kind = std::string(kind),
                .dtypes = std::move(dtypes),
                .make = [compute] { return std::make_unique<FunctionKernel>(compute); },
                .in_place = std::move(in_place)});
}

}  // namespace tutti
