#include "tutti/graph/ops/elementwise.h"

#include <fmt/format.h>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

// What an op accepts and what it gives.
enum class Kind { kNumber, kSigned, kFloating, kBool, kAny };

absl::Status RequireKind(const InferContext& c, int i, Kind kind) {
  const DType dtype = c.dtype(i);
  switch (kind) {
    case Kind::kNumber:
      if (dtype != kBool) return absl::OkStatus();
      return c.Error("{}; expected numbers, use Cast first", c.DescribeInput(i));
    case Kind::kSigned:
      if (IsSigned(dtype)) return absl::OkStatus();
      return c.Error("{}; expected signed numbers, use Cast first", c.DescribeInput(i));
    case Kind::kFloating:
      return c.RequireFloating(i);
    case Kind::kBool:
      return c.RequireDType(i, kBool);
    case Kind::kAny:
      break;
  }
  return absl::OkStatus();
}

absl::Status CannotBroadcast(const InferContext& c, int i, int j) {
  return c.Error(
      "shapes do not broadcast: {}, {}; counted from the last, dimensions must be equal or 1",
      c.DescribeInput(i), c.DescribeInput(j));
}

// One input; the output has its shape, and its dtype unless `gives` says otherwise.
auto Unary(Kind kind, DType gives = DType::kInvalid) {
  return [kind, gives](InferContext& c) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(RequireKind(c, 0, kind));
    c.SetOutput(0, gives == DType::kInvalid ? c.dtype(0) : gives, c.shape(0));
    return absl::OkStatus();
  };
}

auto Binary(Kind kind, DType gives = DType::kInvalid) {
  return [kind, gives](InferContext& c) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(RequireKind(c, 0, kind));
    TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
    const auto shape = BroadcastShapes(c.shape(0), c.shape(1));
    if (!shape) return CannotBroadcast(c, 0, 1);
    c.SetOutput(0, gives == DType::kInvalid ? c.dtype(0) : gives, *shape);
    return absl::OkStatus();
  };
}

absl::Status InferAddN(InferContext& c) {
  if (c.num_inputs() == 0) return c.Error("no values given; expected at least one");
  TUTTI_RETURN_IF_ERROR(RequireKind(c, 0, Kind::kNumber));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  Shape shape = c.shape(0);
  for (int i = 1; i < c.num_inputs(); ++i) {
    const auto merged = shape.MergedWith(c.shape(i));
    if (!merged) {
      return c.Error("shapes differ: {}, {}; AddN does not broadcast, use Add", c.DescribeInput(0),
                     c.DescribeInput(i));
    }
    shape = *merged;
  }
  c.SetOutput(0, c.dtype(0), shape);
  return absl::OkStatus();
}

absl::Status InferSelect(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireDType(0, kBool));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType(1));
  const auto branches = BroadcastShapes(c.shape(1), c.shape(2));
  if (!branches) return CannotBroadcast(c, 1, 2);
  const auto shape = BroadcastShapes(c.shape(0), *branches);
  if (!shape) {
    return CannotBroadcast(c, 0, BroadcastShapes(c.shape(0), c.shape(1)) ? 2 : 1);
  }
  c.SetOutput(0, c.dtype(1), *shape);
  return absl::OkStatus();
}

absl::Status InferCast(InferContext& c) {
  const DType dtype = c.attr<DType>("dtype");
  if (dtype == DType::kInvalid) return c.Error("attribute \"dtype\" is invalid");
  c.SetOutput(0, dtype, c.shape(0));
  return absl::OkStatus();
}

absl::Status InferClip(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequireKind(c, 0, Kind::kNumber));
  const double low = c.attr<double>("low");
  const double high = c.attr<double>("high");
  if (!(low <= high)) {
    return c.Error("low is {}, high is {}; low must not be above high", low, high);
  }
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

void AddUnary(OpRegistry& registry, const char* name, Kind kind, Gradient gradient,
              DType gives = DType::kInvalid) {
  registry.Add({.name = name, .inputs = {"x"}, .infer = Unary(kind, gives), .gradient = gradient});
}

OpDef BinaryDef(const char* name, Kind kind, Gradient gradient, DType gives = DType::kInvalid) {
  return {.name = name, .inputs = {"a", "b"}, .infer = Binary(kind, gives), .gradient = gradient};
}

void AddBinary(OpRegistry& registry, const char* name, Kind kind, Gradient gradient,
               DType gives = DType::kInvalid) {
  registry.Add(BinaryDef(name, kind, gradient, gives));
}

void AddCommutative(OpRegistry& registry, const char* name, Kind kind, Gradient gradient,
                    DType gives = DType::kInvalid) {
  OpDef def = BinaryDef(name, kind, gradient, gives);
  def.commutative = true;
  registry.Add(std::move(def));
}

}  // namespace

void RegisterElementwiseOps(OpRegistry& registry) {
  for (const char* name : {"Add", "Mul"}) {
    AddCommutative(registry, name, Kind::kNumber, Gradient::kDefined);
  }
  for (const char* name : {"Sub", "Div", "Mod", "Pow", "Maximum", "Minimum", "SquaredDifference"}) {
    AddBinary(registry, name, Kind::kNumber, Gradient::kDefined);
  }
  AddBinary(registry, "FloorDiv", Kind::kNumber, Gradient::kZero);
  for (const char* name : {"Greater", "GreaterEqual", "Less", "LessEqual"}) {
    AddBinary(registry, name, Kind::kNumber, Gradient::kZero, kBool);
  }
  for (const char* name : {"Equal", "NotEqual"}) {
    AddCommutative(registry, name, Kind::kAny, Gradient::kZero, kBool);
  }
  for (const char* name : {"LogicalAnd", "LogicalOr"}) {
    AddCommutative(registry, name, Kind::kBool, Gradient::kZero, kBool);
  }
  AddUnary(registry, "LogicalNot", Kind::kBool, Gradient::kZero, kBool);
  AddUnary(registry, "Neg", Kind::kSigned, Gradient::kDefined);
  for (const char* name : {"Abs", "Square"}) {
    AddUnary(registry, name, Kind::kNumber, Gradient::kDefined);
  }
  AddUnary(registry, "Sign", Kind::kNumber, Gradient::kZero);
  for (const char* name : {"Sqrt", "Rsqrt", "Exp", "Log", "Log1p", "Sin", "Cos", "Erf"}) {
    AddUnary(registry, name, Kind::kFloating, Gradient::kDefined);
  }
  for (const char* name : {"Floor", "Ceil", "Round"}) {
    AddUnary(registry, name, Kind::kFloating, Gradient::kZero);
  }
  AddUnary(registry, "IsFinite", Kind::kFloating, Gradient::kZero, kBool);
  registry.Add({.name = "AddN",
                .inputs = {"values..."},
                .infer = InferAddN,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Select",
                .inputs = {"condition", "a", "b"},
                .infer = InferSelect,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Cast",
                .inputs = {"x"},
                .attrs = {{"dtype", AttrType::kDType}},
                .infer = InferCast,
                .gradient = Gradient::kDefined});
  registry.Add({.name = "Clip",
                .inputs = {"x"},
                .attrs = {{"low", AttrType::kFloat}, {"high", AttrType::kFloat}},
                .infer = InferClip,
                .gradient = Gradient::kDefined});
}

#define TUTTI_UNARY(Name) \
  Output Name(Input x, std::string_view name) { return OpBuilder(#Name, name).In(x).Build(); }
#define TUTTI_BINARY(Name)                               \
  Output Name(Input a, Input b, std::string_view name) { \
    return OpBuilder(#Name, name).In(a).In(b).Build();   \
  }
TUTTI_BINARY(Add)
TUTTI_BINARY(Sub)
TUTTI_BINARY(Mul)
TUTTI_BINARY(Div)
TUTTI_BINARY(FloorDiv)
TUTTI_BINARY(Mod)
TUTTI_BINARY(Pow)
TUTTI_BINARY(Maximum)
TUTTI_BINARY(Minimum)
TUTTI_BINARY(SquaredDifference)
TUTTI_BINARY(Greater)
TUTTI_BINARY(GreaterEqual)
TUTTI_BINARY(Less)
TUTTI_BINARY(LessEqual)
TUTTI_BINARY(Equal)
TUTTI_BINARY(NotEqual)
TUTTI_BINARY(LogicalAnd)
TUTTI_BINARY(LogicalOr)
TUTTI_UNARY(LogicalNot)
TUTTI_UNARY(Neg)
TUTTI_UNARY(Abs)
TUTTI_UNARY(Sign)
TUTTI_UNARY(Square)
TUTTI_UNARY(Sqrt)
TUTTI_UNARY(Rsqrt)
TUTTI_UNARY(Exp)
TUTTI_UNARY(Log)
TUTTI_UNARY(Log1p)
TUTTI_UNARY(Sin)
TUTTI_UNARY(Cos)
TUTTI_UNARY(Erf)
TUTTI_UNARY(Floor)
TUTTI_UNARY(Ceil)
TUTTI_UNARY(Round)
TUTTI_UNARY(IsFinite)
#undef TUTTI_UNARY
#undef TUTTI_BINARY

Output AddN(std::span<const Output> values, std::string_view name) {
  return OpBuilder("AddN", name).In(values).Build();
}

Output Select(Input condition, Input a, Input b, std::string_view name) {
  OpBuilder builder("Select", name);
  // Numbers go by the other branch, not by the condition's bool.
  const Input& typed = a.is_number() ? b : a;
  builder.NumbersAs(typed.is_literal() ? typed.literal().dtype() : typed.output().dtype());
  return builder.In(condition).In(a).In(b).Build();
}

Output Cast(Input x, DType dtype, std::string_view name) {
  return OpBuilder("Cast", name).In(x).Attr("dtype", dtype).Build();
}

Output Clip(Input x, double low, double high, std::string_view name) {
  return OpBuilder("Clip", name).In(x).Attr("low", low).Attr("high", high).Build();
}

}  // namespace tutti
