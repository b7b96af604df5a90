#include "tutti/autodiff/gradient_registry.h"

#include "tutti/autodiff/register.h"
#include "tutti/base/check.h"
#include "tutti/graph/ops/shape.h"

namespace tutti {

GradientRegistry& GradientRegistry::Global() {
  static GradientRegistry* const registry = [] {
    auto* made = new GradientRegistry;
    RegisterAllGradients(*made);
    return made;
  }();
  return *registry;
}

void GradientRegistry::Add(std::string_view op, GradientFunction function) {
  const bool added = functions_.emplace(std::string(op), std::move(function)).second;
  TUTTI_CHECK(added);
}

const GradientFunction* GradientRegistry::Find(std::string_view op) const {
  const auto it = functions_.find(op);
  return it == functions_.end() ? nullptr : &it->second;
}

Output GradientContext::gradient(int i) {
  if (outputs_[i].empty()) return {};
  if (outputs_[i].sparse()) outputs_[i] = GradientValue{Densify(outputs_[i], node_.output(i))};
  return outputs_[i].dense;
}

Output GradientContext::GradientOrZeros(int i) {
  const Output given = gradient(i);
  return given ? given : ZerosLike(node_.output(i));
}

}  // namespace tutti
