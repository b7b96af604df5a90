#include "tutti/graph/ops/random.h"

#include <cmath>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

// The optional scalars behind the fixed inputs.
absl::Status CheckScalars(const InferContext& c, int most) {
  const int fixed = c.def().fixed_inputs();
  if (c.num_inputs() > fixed + most) {
    return c.Error("{} inputs given; expected at most {}", c.num_inputs(), fixed + most);
  }
  for (int i = fixed; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireDType(i, kInt64));
    TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 0));
  }
  return absl::OkStatus();
}

absl::Status SetRandomOutput(InferContext& c, DType dtype) {
  TUTTI_RETURN_IF_ERROR(CheckScalars(c, 1));
  if (const auto dims = c.ConstantInput(0); dims && c.RequireIndex(0).ok()) {
    for (int64_t i = 0; i < dims->elements(); ++i) {
      const int64_t dim =
          dims->dtype() == kInt32 ? dims->data<int32_t>()[i] : dims->data<int64_t>()[i];
      if (dim < 0) return c.Error("shape[{}] is {}; expected 0 or more", i, dim);
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, c.ShapeInput(0));
  c.SetOutput(0, dtype, shape);
  return absl::OkStatus();
}

absl::Status InferUniform(InferContext& c) {
  const DType dtype = c.attr<DType>("dtype");
  const double lo = c.attr<double>("lo");
  const double hi = c.attr<double>("hi");
  if (!IsFloating(dtype) && dtype != kInt32 && dtype != kInt64) {
    return c.Error("attribute \"dtype\" is {}; expected a floating-point type, int32 or int64",
                   NameOf(dtype));
  }
  if (!std::isfinite(lo) || !std::isfinite(hi) || !(lo < hi)) {
    return c.Error("lo is {}, hi is {}; expected finite values with lo below hi", lo, hi);
  }
  if (!IsFloating(dtype)) {
    const double lowest = dtype == kInt32 ? -0x1p31 : -0x1p63;
    if (lo != std::floor(lo) || hi != std::floor(hi) || lo < lowest || hi > -lowest) {
      return c.Error("lo is {}, hi is {}; expected whole numbers in the range of {}", lo, hi,
                     NameOf(dtype));
    }
  }
  return SetRandomOutput(c, dtype);
}

absl::Status InferNormal(InferContext& c) {
  const DType dtype = c.attr<DType>("dtype");
  const double mean = c.attr<double>("mean");
  const double stddev = c.attr<double>("stddev");
  if (!IsFloating(dtype)) {
    return c.Error("attribute \"dtype\" is {}; expected a floating-point type", NameOf(dtype));
  }
  if (!std::isfinite(mean) || !std::isfinite(stddev) || stddev < 0) {
    return c.Error("mean is {}, stddev is {}; expected finite values and stddev of 0 or more", mean,
                   stddev);
  }
  return SetRandomOutput(c, dtype);
}

absl::Status InferShuffle(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireRankAtLeast(0, 1));
  TUTTI_RETURN_IF_ERROR(CheckScalars(c, 1));
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

absl::Status InferDropout(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(0));
  TUTTI_RETURN_IF_ERROR(CheckScalars(c, 2));
  const double rate = c.attr<double>("rate");
  if (!(rate >= 0 && rate < 1)) {
    return c.Error("rate is {}; expected 0 or more and less than 1", rate);
  }
  const bool has_offset = c.attr<bool>("has_offset");
  if (c.num_inputs() == 3 && !has_offset) {
    return c.Error("3 inputs given; with has_offset = false expected x and at most the step");
  }
  if (c.num_inputs() == 1 && has_offset) {
    return c.Error("has_offset is set, but there is no input for the offset");
  }
  c.SetOutput(0, c.dtype(0), c.shape(0));
  return absl::OkStatus();
}

// FNV-1a: the same on every machine and in every version.
int64_t HashOf(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 1099511628211u;
  return int64_t(hash);
}

// A builder of a random op under the name that its node seed is made from.
OpBuilder RandomBuilder(std::string_view op, std::string_view name, Graph* graph,
                        const RandomSeed& random) {
  if (SubgraphBeingBuilt() != nullptr) graph = SubgraphBeingBuilt();
  std::string own_name(name);
  int64_t node_seed = 0;
  if (random.node_seed) {
    node_seed = *random.node_seed;
  } else if (graph != nullptr) {
    const std::string full =
        name.empty() ? graph->UniqueName(op) : graph->name_scope() + std::string(name);
    own_name = full.substr(graph->name_scope().size());
    node_seed = HashOf(full);
  }
  OpBuilder builder(op, own_name);
  if (graph != nullptr) builder.On(*graph);
  builder.Attr("seed", random.seed).Attr("node_seed", node_seed);
  return builder;
}

Graph* GraphOf(const Input& input, const RandomSeed& random) {
  if (!input.is_literal()) return &input.output().graph();
  return random.step ? &random.step.graph() : nullptr;
}

OpBuilder& WithStep(OpBuilder& builder, const RandomSeed& random) {
  return random.step ? builder.In(random.step) : builder;
}

Tensor DimsTensor(const Shape& shape) {
  return Tensor::Of<int64_t>(Shape{shape.rank()}, shape.dims());
}

Output BuildUniform(Graph* graph, const Input& shape, const RandomUniformOptions& options,
                    std::string_view name) {
  OpBuilder builder = RandomBuilder("RandomUniform", name, graph, options.random);
  builder.In(shape).Attr("dtype", options.dtype).Attr("lo", options.lo).Attr("hi", options.hi);
  return WithStep(builder, options.random).Build();
}

Output BuildNormal(std::string_view op, Graph* graph, const Input& shape,
                   const RandomNormalOptions& options, std::string_view name) {
  OpBuilder builder = RandomBuilder(op, name, graph, options.random);
  builder.In(shape)
      .Attr("dtype", options.dtype)
      .Attr("mean", options.mean)
      .Attr("stddev", options.stddev);
  return WithStep(builder, options.random).Build();
}

}  // namespace

void RegisterRandomOps(OpRegistry& registry) {
  const AttrDef seed("seed", int64_t{0});
  const AttrDef node_seed("node_seed", int64_t{0});
  registry.Add({.name = "RandomUniform",
                .inputs = {"shape", "step..."},
                .attrs = {seed, node_seed, {"dtype", kFloat32}, {"lo", 0.0}, {"hi", 1.0}},
                .infer = InferUniform,
                .gradient = Gradient::kZero,
                .stateful = true,
                .without_effects = true});
  for (const char* op : {"RandomNormal", "TruncatedNormal"}) {
    registry.Add({.name = op,
                  .inputs = {"shape", "step..."},
                  .attrs = {seed, node_seed, {"dtype", kFloat32}, {"mean", 0.0}, {"stddev", 1.0}},
                  .infer = InferNormal,
                  .gradient = Gradient::kZero,
                  .stateful = true,
                  .without_effects = true});
  }
  registry.Add({.name = "Shuffle",
                .inputs = {"x", "step..."},
                .attrs = {seed, node_seed, {"inverse", false}},
                .infer = InferShuffle,
                .gradient = Gradient::kDefined,
                .stateful = true,
                .without_effects = true});
  // Behind x: the step, the offset, or both in this order; has_offset tells whether the last is
  // one.
  registry.Add({.name = "Dropout",
                .inputs = {"x", "step_and_offset..."},
                .attrs = {seed, node_seed, {"rate", AttrType::kFloat}, {"has_offset", false}},
                .infer = InferDropout,
                .gradient = Gradient::kDefined,
                .stateful = true,
                .without_effects = true});
}

Output RandomUniform(Input shape, const RandomUniformOptions& options, std::string_view name) {
  return BuildUniform(GraphOf(shape, options.random), shape, options, name);
}

Output RandomUniform(Graph& graph, const Shape& shape, const RandomUniformOptions& options,
                     std::string_view name, std::source_location where) {
  return BuildUniform(&graph, Input(DimsTensor(shape), where), options, name);
}

Output RandomNormal(Input shape, const RandomNormalOptions& options, std::string_view name) {
  return BuildNormal("RandomNormal", GraphOf(shape, options.random), shape, options, name);
}

Output RandomNormal(Graph& graph, const Shape& shape, const RandomNormalOptions& options,
                    std::string_view name, std::source_location where) {
  return BuildNormal("RandomNormal", &graph, Input(DimsTensor(shape), where), options, name);
}

Output TruncatedNormal(Input shape, const RandomNormalOptions& options, std::string_view name) {
  return BuildNormal("TruncatedNormal", GraphOf(shape, options.random), shape, options, name);
}

Output TruncatedNormal(Graph& graph, const Shape& shape, const RandomNormalOptions& options,
                       std::string_view name, std::source_location where) {
  return BuildNormal("TruncatedNormal", &graph, Input(DimsTensor(shape), where), options, name);
}

Output Shuffle(Input x, const ShuffleOptions& options, std::string_view name) {
  OpBuilder builder = RandomBuilder("Shuffle", name, GraphOf(x, options.random), options.random);
  builder.In(x).Attr("inverse", options.inverse);
  return WithStep(builder, options.random).Build();
}

Output Dropout(Input x, double rate, const DropoutOptions& options, std::string_view name) {
  OpBuilder builder = RandomBuilder("Dropout", name, GraphOf(x, options.random), options.random);
  builder.In(x).Attr("rate", rate).Attr("has_offset", bool(options.offset));
  WithStep(builder, options.random);
  if (options.offset) builder.In(options.offset);
  return builder.Build();
}

}  // namespace tutti
