#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"
#include "tutti/graph/op_def.h"

// The optimizer updates as data. Each line makes a dense op (`ApplyAdam`), a sparse one
// (`ApplyAdamSparse`) and one for many variables at once (`_FusedApplyAdam`, made by the pass that
// fuses updates). Kernels, that pass and the optimizers read the table too. Inputs, in order:
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

// What an update is given, in the order of its inputs.
struct UpdateInputs {
  std::vector<Input> references = {};  // the variable, then its slots
  std::vector<Input> scalars = {};     // the learning rate, then the step where the op takes it
  std::vector<Input> gradient = {};    // one, or indices and rows
  std::optional<Input> scale = std::nullopt;
};

// Adds the dense or sparse op of the line `op` ("ApplyAdam"), by what the gradient is, and returns
// the variable after it. REQUIRES: there is such a line, and the inputs are as many as it says.
Output BuildUpdate(std::string_view op, UpdateInputs inputs, const AttrList& attrs,
                   std::string_view name = "");

}  // namespace tutti
