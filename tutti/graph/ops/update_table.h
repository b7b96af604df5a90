#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/op_def.h"

// The optimizer updates as data. Each line makes a dense op (`ApplyAdam`), a sparse one
// (`ApplyAdamSparse`) and one for many variables at once (`_FusedApplyAdam`, made by the pass that
// fuses updates). Kernels and that pass read the table too. Inputs, in order:
//   &variable, &slots..., learning_rate, [step,] gradient, [scale]               dense
//   &variable, &slots..., learning_rate, [step,] indices, rows, [scale]          sparse
//   learning_rate, scale, [step,] then (&variable, &slots..., gradient) for each fused
// In the fused op the attribute "scaled" tells whether `scale` counts; without one it is the
// learning rate once more.
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

  std::string fused_name() const { return "_Fused" + name; }
  int fused_scalars() const { return takes_step ? 3 : 2; }
  int references() const { return 1 + int(slots.size()); }
  int learning_rate_input() const { return references(); }
  int step_input() const { return references() + 1; }  // REQUIRES: takes_step
  int gradient_input() const { return references() + 1 + (takes_step ? 1 : 0); }
};

std::span<const UpdateOp> UpdateOps();

// The line of "ApplyAdam" or "ApplyAdamSparse" (*sparse tells which); null for other ops.
const UpdateOp* FindUpdateOp(std::string_view op, bool* sparse = nullptr);

}  // namespace tutti
