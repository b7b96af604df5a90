#include "tutti/graph/op_def.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {

int OpDef::fixed_inputs() const { return int(inputs.size()) - (variadic() ? 1 : 0); }

namespace {

// The names of a group that repeats: "&variable,gradient..." has two.
std::vector<std::string_view> GroupNames(const OpDef& def) {
  std::string_view rest = def.inputs.back();
  rest.remove_suffix(3);
  std::vector<std::string_view> names;
  for (;;) {
    const size_t comma = rest.find(',');
    names.push_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) return names;
    rest.remove_prefix(comma + 1);
  }
}

std::string_view WithoutMark(std::string_view name) {
  return name.starts_with('&') ? name.substr(1) : name;
}

}  // namespace

bool OpDef::has_subgraphs() const {
  return std::any_of(attrs.begin(), attrs.end(),
                     [](const AttrDef& attr) { return attr.type == AttrType::kSubgraph; });
}

bool OpDef::IsVariableInput(int i) const {
  const int fixed = fixed_inputs();
  if (i < fixed) return inputs[i].starts_with('&');
  if (!variadic() || inputs.back().find('&') == std::string::npos) return false;
  const auto group = GroupNames(*this);
  return group[size_t(i - fixed) % group.size()].starts_with('&');
}

std::string OpDef::InputName(int i) const {
  const int fixed = fixed_inputs();
  if (i < fixed || !variadic()) return std::string(WithoutMark(inputs[i]));
  const auto group = GroupNames(*this);
  const size_t k = size_t(i - fixed);
  return fmt::format("{}[{}]", WithoutMark(group[k % group.size()]), k / group.size());
}

const AttrDef* OpDef::FindAttr(std::string_view attr_name) const {
  for (const AttrDef& attr : attrs) {
    if (attr.name == attr_name) return &attr;
  }
  return nullptr;
}

OpRegistry& OpRegistry::Global() {
  static OpRegistry* const registry = [] {
    auto* made = new OpRegistry;
    RegisterAllOps(*made);
    return made;
  }();
  return *registry;
}

void OpRegistry::Add(OpDef def) {
  TUTTI_CHECK(def.infer != nullptr);
  std::string name = def.name;
  const bool added = ops_.emplace(std::move(name), std::move(def)).second;
  TUTTI_CHECK(added);
}

const OpDef* OpRegistry::Find(std::string_view name) const {
  const auto it = ops_.find(name);
  return it == ops_.end() ? nullptr : &it->second;
}

const AttrValue* InferContext::FindAttr(std::string_view name) const {
  if (const AttrValue* given = tutti::FindAttr(spec_.attrs, name)) return given;
  const AttrDef* declared = def_.FindAttr(name);
  return declared != nullptr && declared->default_value ? &*declared->default_value : nullptr;
}

std::optional<Tensor> InferContext::ConstantInput(int i) const {
  return ConstantValue(spec_.inputs[i]);
}

void InferContext::SetOutput(int i, DType dtype, const Shape& shape) {
  if (int(outputs_.size()) <= i) outputs_.resize(i + 1);
  outputs_[i] = {dtype, shape};
}

std::string InferContext::DescribeInput(int i) const {
  const Output& input = spec_.inputs[i];
  return fmt::format("{} is {} {}", def_.InputName(i), NameOf(input.dtype()),
                     input.shape().ToString());
}

absl::Status InferContext::RequireSameDType(int first) const {
  for (int i = first + 1; i < num_inputs(); ++i) {
    if (dtype(i) != dtype(first)) {
      return Error("dtypes differ: {}, {}; use Cast on one of them", DescribeInput(first),
                   DescribeInput(i));
    }
  }
  return absl::OkStatus();
}

absl::Status InferContext::RequireDType(int i, DType wanted) const {
  if (dtype(i) == wanted) return absl::OkStatus();
  return Error("{}; expected {}", DescribeInput(i), NameOf(wanted));
}

absl::Status InferContext::RequireFloating(int i) const {
  if (IsFloating(dtype(i))) return absl::OkStatus();
  return Error("{}; expected a floating-point type", DescribeInput(i));
}

absl::Status InferContext::RequireIndex(int i) const {
  if (dtype(i) == kInt32 || dtype(i) == kInt64) return absl::OkStatus();
  return Error("{}; expected int32 or int64", DescribeInput(i));
}

absl::Status InferContext::RequireRank(int i, int rank) const {
  if (!shape(i).has_rank() || shape(i).rank() == rank) return absl::OkStatus();
  return Error("{}; expected {} dimension{}", DescribeInput(i), rank, rank == 1 ? "" : "s");
}

absl::Status InferContext::RequireRankAtLeast(int i, int rank) const {
  if (!shape(i).has_rank() || shape(i).rank() >= rank) return absl::OkStatus();
  return Error("{}; expected at least {} dimension{}", DescribeInput(i), rank,
               rank == 1 ? "" : "s");
}

absl::StatusOr<int> InferContext::NormalizeAxis(int64_t axis, int rank) const {
  if (axis < -rank || axis >= rank) {
    return Error("axis {} is out of range for {} dimensions; expected {} to {}", axis, rank, -rank,
                 rank - 1);
  }
  return int(axis < 0 ? axis + rank : axis);
}

}  // namespace tutti
