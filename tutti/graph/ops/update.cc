#include "tutti/graph/ops/update.h"

#include "tutti/base/check.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"
#include "tutti/graph/ops/rows.h"
#include "tutti/graph/ops/update_table.h"

namespace tutti {
namespace {

absl::Status RequireScalar(InferContext& c, int i) {
  TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 0));
  if (IsFloating(c.dtype(i)) || IsInteger(c.dtype(i))) return absl::OkStatus();
  return c.Error("{}; expected a number", c.DescribeInput(i));
}

// Variable and slots: distinct nodes of one type. *shape becomes what is known of all of them.
absl::Status CheckReferences(InferContext& c, int count, Shape* shape) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  *shape = c.shape(0);
  for (int i = 1; i < count; ++i) {
    const auto merged = shape->MergedWith(c.shape(i));
    if (c.dtype(i) != c.dtype(0) || !merged) {
      return c.Error("{} but {}; a slot has the type and shape of its variable", c.DescribeInput(i),
                     c.DescribeInput(0));
    }
    *shape = *merged;
    for (int j = 0; j < i; ++j) {
      if (c.spec().inputs[i] == c.spec().inputs[j]) {
        return c.Error("{} and {} are both \"{}\"; they must be different variables",
                       c.def().InputName(j), c.def().InputName(i), c.spec().inputs[i].name());
      }
    }
  }
  return absl::OkStatus();
}

absl::Status InferUpdate(InferContext& c, const UpdateOp& op, bool sparse) {
  Shape shape;
  TUTTI_RETURN_IF_ERROR(CheckReferences(c, op.references(), &shape));
  TUTTI_RETURN_IF_ERROR(RequireScalar(c, op.learning_rate_input()));
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(op.learning_rate_input()));
  if (op.takes_step) TUTTI_RETURN_IF_ERROR(RequireScalar(c, op.step_input()));
  const int gradient = op.gradient_input() + (sparse ? 1 : 0);
  if (c.dtype(gradient) != c.dtype(0)) {
    return c.Error("dtypes differ: {}, {}; use Cast on one of them", c.DescribeInput(0),
                   c.DescribeInput(gradient));
  }
  if (sparse) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(gradient - 1));
    TUTTI_RETURN_IF_ERROR(CheckRowsInput(c, 0, gradient - 1, gradient));
  } else {
    const auto merged = shape.MergedWith(c.shape(gradient));
    if (!merged) {
      return c.Error("shapes differ: variable is {}, gradient is {}", shape.ToString(),
                     c.shape(gradient).ToString());
    }
    shape = *merged;
  }
  if (c.num_inputs() > gradient + 2) {
    return c.Error("{} scales given; expected at most one", c.num_inputs() - gradient - 1);
  }
  if (c.num_inputs() == gradient + 2) TUTTI_RETURN_IF_ERROR(RequireScalar(c, gradient + 1));
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

// What stands in for several updates of one kind; see update_table.h.
absl::Status InferFused(InferContext& c, const UpdateOp& op) {
  const int first = op.fused_scalars();
  for (int i = 0; i < first; ++i) TUTTI_RETURN_IF_ERROR(RequireScalar(c, i));
  for (int i = first; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireFloating(i));
    TUTTI_RETURN_IF_ERROR(c.RequireDType(i, c.dtype(0)));
    const int variable = i - (i - first) % (op.references() + 1);
    if (!c.shape(i).CompatibleWith(c.shape(variable))) {
      return c.Error("shapes differ: {}, {}", c.DescribeInput(variable), c.DescribeInput(i));
    }
  }
  return absl::OkStatus();
}

// A literal step must stay an integer, whatever the dtype of the variable beside it.
Input WholeStep(const Input& step) {
  if (!step.is_literal() || !step.is_number() || !IsInteger(step.literal().dtype())) return step;
  int64_t value = 0;
  VisitDType(step.literal().dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) value = int64_t(*step.literal().data<T>());
  });
  return {Tensor::Scalar<int64_t>(value), step.where()};
}

AttrList AttrsOf(const GradientDescentOptions&) { return {}; }
AttrList AttrsOf(const MomentumOptions& o) {
  return {{"momentum", o.momentum}, {"nesterov", o.nesterov}};
}
AttrList AttrsOf(const AdagradOptions& o) { return {{"epsilon", o.epsilon}}; }
AttrList AttrsOf(const AdamOptions& o) {
  return {{"beta1", o.beta1}, {"beta2", o.beta2}, {"epsilon", o.epsilon}};
}
AttrList AttrsOf(const AdamWOptions& o) {
  return {{"beta1", o.beta1},
          {"beta2", o.beta2},
          {"epsilon", o.epsilon},
          {"weight_decay", o.weight_decay}};
}
AttrList AttrsOf(const FtrlOptions& o) { return {{"beta", o.beta}, {"l1", o.l1}, {"l2", o.l2}}; }

using Inputs = std::vector<Input>;

template <typename Options>
Output Build(std::string_view op, Inputs references, Inputs scalars, Inputs gradient,
             const Options& options, std::string_view name) {
  return BuildUpdate(
      op, {std::move(references), std::move(scalars), std::move(gradient), options.scale},
      AttrsOf(options), name);
}

// The two forms of RMSProp are two ops, so that without momentum no slot is read and written.
Output BuildRMSProp(Inputs references, Inputs scalars, Inputs gradient,
                    const RMSPropOptions& options, std::string_view name) {
  if (options.momentum != 0 && !options.momentum_slot) {
    ThrowInvalidArgument(
        fmt::format("ApplyRMSProp: momentum is {} but there is no momentum_slot to keep it in",
                    options.momentum));
  }
  AttrList attrs = {{"epsilon", options.epsilon}, {"rho", options.rho}};
  if (options.momentum_slot) {
    references.push_back(*options.momentum_slot);
    SetAttr(attrs, "momentum", options.momentum);
  }
  return BuildUpdate(
      options.momentum_slot ? "ApplyRMSPropMomentum" : "ApplyRMSProp",
      {std::move(references), std::move(scalars), std::move(gradient), options.scale}, attrs, name);
}

}  // namespace

std::span<const UpdateOp> UpdateOps() {
  static const std::vector<UpdateOp> ops = {
      {"ApplyGradientDescent", UpdateRule::kGradientDescent, {}},
      {"ApplyMomentum",
       UpdateRule::kMomentum,
       {"accumulator"},
       false,
       {{"momentum", 0.9}, {"nesterov", false}}},
      {"ApplyAdagrad", UpdateRule::kAdagrad, {"square_sum"}, false, {{"epsilon", 1e-10}}},
      {"ApplyRMSProp",
       UpdateRule::kRMSProp,
       {"square_mean"},
       false,
       {{"rho", 0.9}, {"epsilon", 1e-8}}},
      {"ApplyRMSPropMomentum",
       UpdateRule::kRMSPropMomentum,
       {"square_mean", "momentum_slot"},
       false,
       {{"rho", 0.9}, {"epsilon", 1e-8}, {"momentum", 0.0}}},
      {"ApplyAdam",
       UpdateRule::kAdam,
       {"m", "v"},
       true,
       {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}}},
      {"ApplyAdamW",
       UpdateRule::kAdamW,
       {"m", "v"},
       true,
       {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}}},
      {"ApplyFtrl",
       UpdateRule::kFtrl,
       {"n", "z"},
       false,
       {{"l1", 0.0}, {"l2", 0.0}, {"beta", 1.0}}},
  };
  return ops;
}

const UpdateOp* FindUpdateOp(std::string_view op, bool* sparse) {
  const bool is_sparse = op.ends_with("Sparse");
  if (is_sparse) op.remove_suffix(6);
  if (sparse != nullptr) *sparse = is_sparse;
  for (const UpdateOp& candidate : UpdateOps()) {
    if (candidate.name == op) return &candidate;
  }
  return nullptr;
}

void RegisterUpdateOps(OpRegistry& registry) {
  for (const UpdateOp& op : UpdateOps()) {
    for (const bool sparse : {false, true}) {
      std::vector<std::string> inputs = {"&variable"};
      for (const std::string& slot : op.slots) inputs.push_back("&" + slot);
      inputs.push_back("learning_rate");
      if (op.takes_step) inputs.push_back("step");
      if (sparse) inputs.push_back("indices");
      inputs.push_back(sparse ? "rows" : "gradient");
      inputs.push_back("scale...");
      registry.Add({.name = op.name + (sparse ? "Sparse" : ""),
                    .inputs = inputs,
                    .attrs = op.attrs,
                    .infer = [&op, sparse](InferContext& c) { return InferUpdate(c, op, sparse); },
                    .stateful = true,
                    .provides_outputs = true});
    }
    std::vector<std::string> fused_inputs = {"learning_rate", "scale"};
    if (op.takes_step) fused_inputs.emplace_back("step");
    std::string group = "&variable";
    for (const std::string& slot : op.slots) group += ",&" + slot;
    fused_inputs.push_back(group + ",gradient...");
    std::vector<AttrDef> attrs = op.attrs;
    attrs.emplace_back("scaled", false);
    registry.Add({.name = op.fused_name(),
                  .inputs = fused_inputs,
                  .attrs = attrs,
                  .infer = [&op](InferContext& c) { return InferFused(c, op); },
                  .stateful = true,
                  .internal = true});
  }
}

Output BuildUpdate(std::string_view op, UpdateInputs inputs, const AttrList& attrs,
                   std::string_view name) {
  const UpdateOp* def = FindUpdateOp(op);
  TUTTI_CHECK(def != nullptr && int(inputs.references.size()) == def->references());
  if (def->takes_step) inputs.scalars[1] = WholeStep(inputs.scalars[1]);
  const bool sparse = inputs.gradient.size() == 2;
  OpBuilder builder(sparse ? def->name + "Sparse" : def->name, name);
  for (const auto& group : {inputs.references, inputs.scalars, inputs.gradient}) {
    for (const Input& input : group) builder.In(input);
  }
  if (inputs.scale) builder.In(*inputs.scale);
  for (const auto& [attr, value] : attrs) builder.Attr(attr, value);
  return builder.Build();
}

Output ApplyGradientDescent(Input variable, Input learning_rate, Input gradient,
                            const GradientDescentOptions& options, std::string_view name) {
  return Build("ApplyGradientDescent", {variable}, {learning_rate}, {gradient}, options, name);
}

Output ApplyGradientDescentSparse(Input variable, Input learning_rate, Input indices, Input rows,
                                  const GradientDescentOptions& options, std::string_view name) {
  return Build("ApplyGradientDescent", {variable}, {learning_rate}, {indices, rows}, options, name);
}

Output ApplyMomentum(Input variable, Input accumulator, Input learning_rate, Input gradient,
                     const MomentumOptions& options, std::string_view name) {
  return Build("ApplyMomentum", {variable, accumulator}, {learning_rate}, {gradient}, options,
               name);
}

Output ApplyMomentumSparse(Input variable, Input accumulator, Input learning_rate, Input indices,
                           Input rows, const MomentumOptions& options, std::string_view name) {
  return Build("ApplyMomentum", {variable, accumulator}, {learning_rate}, {indices, rows}, options,
               name);
}

Output ApplyAdagrad(Input variable, Input square_sum, Input learning_rate, Input gradient,
                    const AdagradOptions& options, std::string_view name) {
  return Build("ApplyAdagrad", {variable, square_sum}, {learning_rate}, {gradient}, options, name);
}

Output ApplyAdagradSparse(Input variable, Input square_sum, Input learning_rate, Input indices,
                          Input rows, const AdagradOptions& options, std::string_view name) {
  return Build("ApplyAdagrad", {variable, square_sum}, {learning_rate}, {indices, rows}, options,
               name);
}

Output ApplyRMSProp(Input variable, Input square_mean, Input learning_rate, Input gradient,
                    const RMSPropOptions& options, std::string_view name) {
  return BuildRMSProp({variable, square_mean}, {learning_rate}, {gradient}, options, name);
}

Output ApplyRMSPropSparse(Input variable, Input square_mean, Input learning_rate, Input indices,
                          Input rows, const RMSPropOptions& options, std::string_view name) {
  return BuildRMSProp({variable, square_mean}, {learning_rate}, {indices, rows}, options, name);
}

Output ApplyAdam(Input variable, Input m, Input v, Input learning_rate, Input step, Input gradient,
                 const AdamOptions& options, std::string_view name) {
  return Build("ApplyAdam", {variable, m, v}, {learning_rate, step}, {gradient}, options, name);
}

Output ApplyAdamSparse(Input variable, Input m, Input v, Input learning_rate, Input step,
                       Input indices, Input rows, const AdamOptions& options,
                       std::string_view name) {
  return Build("ApplyAdam", {variable, m, v}, {learning_rate, step}, {indices, rows}, options,
               name);
}

Output ApplyAdamW(Input variable, Input m, Input v, Input learning_rate, Input step, Input gradient,
                  const AdamWOptions& options, std::string_view name) {
  return Build("ApplyAdamW", {variable, m, v}, {learning_rate, step}, {gradient}, options, name);
}

Output ApplyAdamWSparse(Input variable, Input m, Input v, Input learning_rate, Input step,
                        Input indices, Input rows, const AdamWOptions& options,
                        std::string_view name) {
  return Build("ApplyAdamW", {variable, m, v}, {learning_rate, step}, {indices, rows}, options,
               name);
}

Output ApplyFtrl(Input variable, Input n, Input z, Input learning_rate, Input gradient,
                 const FtrlOptions& options, std::string_view name) {
  return Build("ApplyFtrl", {variable, n, z}, {learning_rate}, {gradient}, options, name);
}

Output ApplyFtrlSparse(Input variable, Input n, Input z, Input learning_rate, Input indices,
                       Input rows, const FtrlOptions& options, std::string_view name) {
  return Build("ApplyFtrl", {variable, n, z}, {learning_rate}, {indices, rows}, options, name);
}

}  // namespace tutti
