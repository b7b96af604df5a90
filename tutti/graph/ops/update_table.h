#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/op_def.h"

// The optimizer updates as data. Each line makes a dense op (`ApplyAdam`) and a sparse one
// (`ApplyAdamSparse`), which kernels and the pass that fuses updates read too. Inputs, in order:
//   &variable, &slots..., learning_rate, [step,] gradient, [scale]            dense
//   &variable, &slots..., learning_rate, [step,] indices, rows, [scale]       sparse
namespace tutti {

enum class UpdateRule {
  kGradientDescent,
  kMomentum,
  kAdagrad,
  kRMSProp,
  kRMSPropMomentum,
  kAdam,
  kAdamW,
  kFtrl,
};

struct UpdateOp {
  std::string name;  // of the dense op
  UpdateRule rule;
  std::vector<std::string> slots;
  bool takes_step = false;
  std::vector<AttrDef> attrs = {};

  int references() const { return 1 + int(slots.size()); }
  int learning_rate_input() const { return references(); }
  int step_input() const { return references() + 1; }  // REQUIRES: takes_step
  int gradient_input() const { return references() + 1 + (takes_step ? 1 : 0); }
};

std::span<const UpdateOp> UpdateOps();

// The line of "ApplyAdam" or "ApplyAdamSparse" (*sparse tells which); null for other ops.
const UpdateOp* FindUpdateOp(std::string_view op, bool* sparse = nullptr);

}  // namespace tutti
