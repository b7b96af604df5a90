#include "tutti/graph/ops/collective.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status CheckDType(const InferContext& c, int i) {
  switch (c.dtype(i)) {
    case kFloat16:
    case kBFloat16:
    case kFloat32:
    case kFloat64:
    case kInt32:
    case kInt64:
      return absl::OkStatus();
    default:
      return c.Error("{}; expected float16, bfloat16, float32, float64, int32 or int64",
                     c.DescribeInput(i));
  }
}

absl::Status CheckWire(const InferContext& c) {
  const auto& wire = c.attr<std::string>("wire");
  if (wire != "as-is" && wire != "bfloat16" && wire != "float16") {
    return c.Error("wire is \"{}\"; expected as-is, bfloat16 or float16", wire);
  }
  if (wire != "as-is" && c.num_inputs() > 0 && c.dtype(0) != kFloat32) {
    return c.Error("wire {} is for float32; {}", wire, c.DescribeInput(0));
  }
  return absl::OkStatus();
}

// Every value comes out with its own type and shape.
absl::Status InferBucket(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(CheckWire(c));
  TUTTI_RETURN_IF_ERROR(c.RequireSameDType());
  for (int i = 0; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(CheckDType(c, i));
    c.SetOutput(i, c.dtype(i), c.shape(i));
  }
  return absl::OkStatus();
}

absl::Status InferAllGather(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(CheckWire(c));
  TUTTI_RETURN_IF_ERROR(CheckDType(c, 0));
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  const Shape& shape = c.shape(0);
  c.SetOutput(0, c.dtype(0), shape.has_rank() ? shape.WithDim(0, kUnknownDim) : shape);
  return absl::OkStatus();
}

std::vector<AttrDef> Attrs() {
  return {{"key", std::string()},
          {"group", std::string()},
          {"algorithm", std::string()},
          {"wire", std::string("as-is")}};
}

OpBuilder Collective(const char* op, const CollectiveOptions& options, std::string_view name) {
  OpBuilder builder(op, name);
  builder.Attr("key", options.key)
      .Attr("group", options.group)
      .Attr("algorithm", options.algorithm)
      .Attr("wire", options.wire);
  return builder;
}

}  // namespace

void RegisterCollectiveOps(OpRegistry& registry) {
  registry.Add({.name = "AllReduce",
                .inputs = {"values..."},
                .attrs = Attrs(),
                .infer = InferBucket,
                .stateful = true,
                .async = true,
                .early = true,
                .collective = true,
                .bucket = true,
                .provides_outputs = true});
  std::vector<AttrDef> with_root = Attrs();
  with_root.emplace_back("root", int64_t{0});
  registry.Add({.name = "Broadcast",
                .inputs = {"values..."},
                .attrs = std::move(with_root),
                .infer = InferBucket,
                .stateful = true,
                .async = true,
                .early = true,
                .collective = true,
                .bucket = true,
                .provides_outputs = true});
  registry.Add({.name = "AllGather",
                .inputs = {"rows"},
                .attrs = Attrs(),
                .infer = InferAllGather,
                .stateful = true,
                .async = true,
                .early = true,
                .collective = true,
                .provides_outputs = true});
  registry.Add({.name = "_Copy",
                .inputs = {"value"},
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, c.dtype(0), c.shape(0));
                      return absl::OkStatus();
                    },
                .internal = true});
}

std::vector<Output> AllReduce(std::span<const Output> values, const CollectiveOptions& options,
                              std::string_view name) {
  return Collective("AllReduce", options, name).In(values).BuildAll();
}

Output AllReduce(Input value, const CollectiveOptions& options, std::string_view name) {
  return Collective("AllReduce", options, name).In(value).Build();
}

std::vector<Output> Broadcast(std::span<const Output> values, int root,
                              const CollectiveOptions& options, std::string_view name) {
  return Collective("Broadcast", options, name).In(values).Attr("root", root).BuildAll();
}

Output AllGather(Input rows, const CollectiveOptions& options, std::string_view name) {
  return Collective("AllGather", options, name).In(rows).Build();
}

std::vector<int64_t> BucketOffsets(std::span<const ValueType> values) {
  constexpr int64_t kAlignment = 64;
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const ValueType& value : values) {
    offsets.push_back((end + kAlignment - 1) / kAlignment * kAlignment);
    end = offsets.back() + value.shape.elements() * int64_t(SizeOf(value.dtype));
  }
  offsets.push_back(end);
  return offsets;
}

}  // namespace tutti
