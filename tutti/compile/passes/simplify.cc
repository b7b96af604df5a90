// Arithmetic that need not be done. Each rule looks at one node, whose inputs in the copy are
// simplified already, so one walk is enough. A rule either lets an input stand for the node, or
// puts a cheaper op in its place.
//
// A node may vanish only if nothing waits on it but for its value: one with control inputs stays,
// and so does one that reads a variable, because it reads at its own time. x*0 is no 0 (NaN,
// infinity); x+0 does become x although it would turn -0 into 0.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/compile/passes/node_facts.h"
#include "tutti/compile/passes/passes.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

using Ints = std::vector<int64_t>;

// Larger constants are not searched for being all 0 or all 1.
constexpr int64_t kMostSearched = 1024;
constexpr int kMostViews = 16;

template <typename T>
double AsDouble(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return double(float(value));
  } else {
    return double(value);
  }
}

bool IsConstant(Output output, double wanted) {
  const Tensor* tensor = ConstantOf(output);
  if (tensor == nullptr || tensor->elements() == 0 || tensor->elements() > kMostSearched) {
    return false;
  }
  return VisitDType(tensor->dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = tensor->data<T>();
    return std::all_of(values, values + tensor->elements(),
                       [&](T value) { return AsDouble(value) == wanted; });
  });
}

// Does broadcasting x with `other` leave the shape of x?
bool KeepsShape(const Shape& x, const Shape& other) {
  if (!x.has_rank() || !other.has_rank() || other.rank() > x.rank()) return false;
  for (int i = 1; i <= other.rank(); ++i) {
    if (other.dim(-i) != 1 && (other.dim(-i) == kUnknownDim || other.dim(-i) != x.dim(-i))) {
      return false;
    }
  }
  return true;
}

bool SameKnownShape(const Shape& a, const Shape& b) { return a.IsFullyKnown() && a == b; }

// The permutation of a Transpose of something of this shape, in full; nullopt while the rank is
// unknown.
std::optional<Ints> PermutationOf(const Node& node, const Shape& shape) {
  if (!shape.has_rank()) return std::nullopt;
  Ints perm = node.attr<Ints>("perm");
  if (perm.empty()) {
    perm.resize(size_t(shape.rank()));
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  return perm;
}

bool IsIdentity(const Ints& perm) {
  for (size_t i = 0; i < perm.size(); ++i) {
    if (perm[i] != int64_t(i)) return false;
  }
  return true;
}

// Only the last two dimensions change places.
bool SwapsMatrix(const Ints& perm) {
  const size_t rank = perm.size();
  if (rank < 2) return false;
  Ints swapped(rank);
  std::iota(swapped.begin(), swapped.end(), 0);
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  return perm == swapped;
}

// 1/x where that is exact for every element: powers of two whose reciprocal is a normal number.
template <typename T>
std::optional<Tensor> ExactReciprocal(const Tensor& tensor) {
  if (tensor.elements() > kMostSearched) return std::nullopt;
  Tensor result(tensor.dtype(), tensor.shape());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    int exponent = 0;
    const T value = tensor.data<T>()[i];
    const T reciprocal = T(1) / value;
    if (std::abs(std::frexp(value, &exponent)) != T(0.5) || !std::isnormal(value) ||
        !std::isnormal(reciprocal)) {
      return std::nullopt;
    }
    result.data<T>()[i] = reciprocal;
  }
  return result;
}

class Simplifier {
 public:
  explicit Simplifier(const Program& program) : program_(program), copy_(program) {}

  absl::StatusOr<Program> Run(const PassContext& context) {
    for (const auto& node : program_.graph->nodes()) {
      TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy_.SpecOf(*node));
      const Output same = spec.control_inputs.empty() ? EqualInput(*node, spec) : Output{};
      if (same && !IsVariable(same)) {
        copy_.Map(node->output(), same);
        copy_.MapControl(*node, {same.node});
        changed_ = true;
        continue;
      }
      TUTTI_RETURN_IF_ERROR(Improve(*node, spec));
      TUTTI_RETURN_IF_ERROR(copy_.AddAs(*node, std::move(spec)).status());
    }
    TUTTI_ASSIGN_OR_RETURN(Program result, copy_.Finish());
    if (!changed_) return result;
    return Prune(std::move(result), context);  // what was skipped over may be needed no more
  }

 private:
  // The value, in the copy, that the node would only repeat; empty if there is none.
  Output EqualInput(const Node& node, const NodeSpec& spec) const {
    if (spec.inputs.empty() || node.num_outputs() != 1) return {};
    const std::string& op = node.op();
    const Output x = spec.inputs[0];
    if (op == "Identity" || op == "StopGradient") return x;
    if (op == "AddN") return spec.inputs.size() == 1 ? x : Output{};
    if (op == "Cast") return x.dtype() == node.attr<DType>("dtype") ? x : Output{};
    if (op == "Neg" || op == "LogicalNot") return InputOfSame(op, x);
    if (op == "Transpose") return EqualTranspose(node, x);
    if (spec.inputs.size() == 2) return EqualOfTwo(node, x, spec.inputs[1]);
    if (node.def().view && SameKnownShape(node.type(0).shape, x.shape())) return x;
    return {};
  }

  // x of Neg(Neg(x)).
  static Output InputOfSame(std::string_view op, Output y) {
    if (y.node->op() != op || !y.node->control_inputs().empty()) return {};
    return y.node->input(0);
  }

  static Output EqualOfTwo(const Node& node, Output x, Output y) {
    const std::string& op = node.op();
    const auto kept = [](Output value, Output constant, double neutral) {
      return IsConstant(constant, neutral) && KeepsShape(value.shape(), constant.shape());
    };
    if (op == "Add" || op == "Mul") {
      const double neutral = op == "Mul" ? 1 : 0;
      if (kept(x, y, neutral)) return x;
      if (kept(y, x, neutral)) return y;
    }
    if (op == "Sub" && kept(x, y, 0)) return x;
    if (op == "Div" && kept(x, y, 1)) return x;
    if (op == "SumToShape" || op == "BroadcastTo" || op == "Reshape") {
      // With a shape that is computed at run time, what computes it must stay.
      if (ConstantOf(y) != nullptr && SameKnownShape(node.type(0).shape, x.shape())) return x;
    }
    return {};
  }

  static Output EqualTranspose(const Node& node, Output x) {
    const auto perm = PermutationOf(node, x.shape());
    if (!perm) return {};
    if (IsIdentity(*perm)) return x;
    if (const auto both = JoinedWithInput(*perm, x); both && IsIdentity(*both)) {
      return x.node->input(0);
    }
    return {};
  }

  // The permutation that a Transpose by `perm` and the Transpose that made `x` are together.
  static std::optional<Ints> JoinedWithInput(const Ints& perm, Output x) {
    if (!MayReachThrough(x, "Transpose")) return std::nullopt;
    const auto inner = PermutationOf(*x.node, x.node->input(0).shape());
    if (!inner) return std::nullopt;
    Ints both;
    for (const int64_t axis : perm) both.push_back((*inner)[size_t(axis)]);
    return both;
  }

  // May a user of `x`, made by `op`, use what that was made from instead?
  static bool MayReachThrough(Output x, std::string_view op) {
    return x.node->op() == op && x.node->control_inputs().empty() && !IsVariable(x.node->input(0));
  }

  static bool CanBecome(const Node& node, std::string_view op) {
    return HasKernelWhereItRuns(node, op, node.type(0).dtype);
  }

  // Changes `spec`, the copy of the node, into something cheaper.
  absl::Status Improve(const Node& node, NodeSpec& spec) {
    if (node.op() == "Mul" && spec.inputs[0] == spec.inputs[1] && CanBecome(node, "Square")) {
      spec.op = "Square";
      spec.inputs.pop_back();
      changed_ = true;
    } else if (node.op() == "Div" && CanBecome(node, "Mul")) {
      return DivideByMultiplying(node, spec);
    } else if (node.op() == "Reshape") {
      ReachThroughViews(spec);
    } else if (node.op() == "Transpose") {
      JoinTransposes(node, spec);
    } else if (node.op() == "MatMul" || node.op() == "BatchMatMul") {
      FoldTranspose(spec, 0, "transpose_a");
      FoldTranspose(spec, 1, "transpose_b");
    }
    return absl::OkStatus();
  }

  absl::Status DivideByMultiplying(const Node& node, NodeSpec& spec) {
    const Tensor* divisor = ConstantOf(spec.inputs[1]);
    if (divisor == nullptr) return absl::OkStatus();
    std::optional<Tensor> reciprocal;
    if (divisor->dtype() == kFloat32) reciprocal = ExactReciprocal<float>(*divisor);
    if (divisor->dtype() == kFloat64) reciprocal = ExactReciprocal<double>(*divisor);
    if (!reciprocal) return absl::OkStatus();
    NodeSpec constant;
    constant.op = "Constant";
    constant.name = node.name() + ".reciprocal";
    while (program_.graph->Find(constant.name) != nullptr) constant.name += '_';
    constant.attrs = {{"value", *std::move(reciprocal)}};
    constant.device = spec.device;
    constant.where = spec.where;
    TUTTI_ASSIGN_OR_RETURN(const Node* added, AddNode(copy_.to(), std::move(constant)));
    spec.op = "Mul";
    spec.inputs[1] = added->output();
    changed_ = true;
    return absl::OkStatus();
  }

  // A Reshape of anything that only changed the shape is a Reshape of its input. Long rows of views
  // are rare, and looked through only so far that the pass stays linear.
  void ReachThroughViews(NodeSpec& spec) {
    Output& x = spec.inputs[0];
    for (int i = 0; i < kMostViews && x.node->def().view && MayReachThrough(x, x.node->op()); ++i) {
      x = x.node->input(0);
      changed_ = true;
    }
  }

  void JoinTransposes(const Node& node, NodeSpec& spec) {
    const auto perm = PermutationOf(node, spec.inputs[0].shape());
    if (!perm) return;
    auto both = JoinedWithInput(*perm, spec.inputs[0]);
    if (!both) return;
    spec.inputs[0] = spec.inputs[0].node->input(0);
    SetAttr(spec.attrs, "perm", *std::move(both));
    changed_ = true;
  }

  void FoldTranspose(NodeSpec& spec, size_t input, std::string_view attr) {
    const Output x = spec.inputs[input];
    if (!MayReachThrough(x, "Transpose")) return;
    const auto perm = PermutationOf(*x.node, x.node->input(0).shape());
    if (!perm || !SwapsMatrix(*perm)) return;
    const AttrValue* given = FindAttr(spec.attrs, attr);
    SetAttr(spec.attrs, attr, !(given != nullptr && std::get<bool>(*given)));
    spec.inputs[input] = x.node->input(0);
    changed_ = true;
  }

  const Program& program_;
  ProgramCopy copy_;
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Program> Simplify(Program program, const PassContext& context) {
  return Simplifier(program).Run(context);
}

}  // namespace tutti
