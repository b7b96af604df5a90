#include "tutti/nn/layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"

namespace tutti::nn {
namespace {

thread_local const ReuseScope* active_reuse = nullptr;

std::string At(const std::source_location& where) {
  const std::string_view file = where.file_name();
  const size_t slash = file.rfind('/');
  return fmt::format(" ({}:{})", slash == file.npos ? file : file.substr(slash + 1), where.line());
}

}  // namespace

Output GetVariable(Graph& graph, const Initializer& initializer, std::string_view name,
                   const VariableOptions& options, std::source_location where) {
  if (active_reuse == nullptr) return Variable(graph, initializer, name, options, where);
  const std::string full = active_reuse->SourceName(graph.name_scope() + std::string(name));
  const Node* node = graph.Find(full);
  if (node == nullptr || !IsVariable(*node)) {
    throw Error(
        Code::kNotFound,
        fmt::format("ReuseScope: there is no variable \"{}\"{}; build the same layers under "
                    "the same names as the first time",
                    full, At(where)));
  }
  if (node->type(0).dtype != initializer.dtype || node->type(0).shape != initializer.shape) {
    ThrowInvalidArgument(
        fmt::format("ReuseScope: the variable \"{}\" is {} {}; this layer{} needs {} {}", full,
                    NameOf(node->type(0).dtype), node->type(0).shape.ToString(), At(where),
                    NameOf(initializer.dtype), initializer.shape.ToString()));
  }
  return node->output();
}

Initializer InitializerFor(std::string_view layer, const InitializerOf& initializer,
                           const Shape& shape, DType dtype, std::string_view name,
                           const std::source_location& where) {
  if (!initializer) {
    ThrowInvalidArgument(
        fmt::format("{}{}: the initialiser of \"{}\" is empty; use GlorotUniform, Zeros or another "
                    "function of nn/initializers.h",
                    layer, At(where), name));
  }
  Initializer made = initializer(shape, dtype);
  if (made.dtype != dtype || made.shape != shape) {
    ThrowInvalidArgument(fmt::format(
        "{}{}: the initialiser of \"{}\" gave {} {}; expected {} {}, the shape and type "
        "that it is called with",
        layer, At(where), name, NameOf(made.dtype), made.shape.ToString(), NameOf(dtype),
        shape.ToString()));
  }
  return made;
}

Output GetWeights(const Input& x, std::string_view layer, const InitializerOf& initializer,
                  const Shape& shape, std::string_view name, const VariableOptions& options) {
  const DType dtype = x.output().dtype();
  if (!IsFloating(dtype)) {
    ThrowInvalidArgument(
        fmt::format("{}{}: the input {} is {}; expected a floating-point type: convert it with "
                    "Cast(x, kFloat32)",
                    layer, At(x.where()), x.output().node->Describe(), NameOf(dtype)));
  }
  return GetVariable(GraphOf(x, layer),
                     InitializerFor(layer, initializer, shape, dtype, name, x.where()), name,
                     options, x.where());
}

ReuseScope::ReuseScope(Graph& graph, std::string_view source, std::string_view name)
    : scope_(graph, name),
      prefix_(scope_.prefix()),
      source_(source),
      previous_(std::exchange(active_reuse, this)) {}
ReuseScope::~ReuseScope() { active_reuse = previous_; }

const ReuseScope* ReuseScope::Current() { return active_reuse; }

std::string ReuseScope::SourceName(std::string_view name) const {
  if (name.starts_with(prefix_)) name.remove_prefix(prefix_.size());
  return source_ + std::string(name);
}

Graph& GraphOf(const Input& x, std::string_view layer) {
  if (x.is_literal()) {
    ThrowInvalidArgument(fmt::format(
        "{}{}: the input is a literal or empty; expected a node's output", layer, At(x.where())));
  }
  return x.output().graph();
}

int64_t KnownDim(const Input& x, int axis, std::string_view layer) {
  GraphOf(x, layer);
  const Shape& shape = x.output().shape();
  const int rank = shape.rank();
  const int needed = axis < 0 ? -axis : axis + 1;
  if (!shape.has_rank() || rank < needed || shape[axis] < 0) {
    ThrowInvalidArgument(
        fmt::format("{}{}: dimension {} of the input {} must be known; its shape is {}", layer,
                    At(x.where()), axis, x.output().node->Describe(), shape.ToString()));
  }
  return shape[axis];
}

Output MergeLeading(Input x, int kept) {
  const Shape& shape = x.output().shape();
  if (shape.rank() == kept + 1) return x.output();
  std::vector<int64_t> dims = {-1};
  for (int i = shape.rank() - kept; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return Reshape(x, Shape(dims));
}

Output UnmergeLeading(Input y, Output x, int kept) {
  const Shape& merged = y.output().shape();
  const int leading = x.shape().rank() - kept;
  if (leading == 1) return y.output();
  std::vector<int64_t> dims;
  for (int i = 0; i < leading; ++i) dims.push_back(x.shape()[i]);
  for (int i = 1; i < merged.rank(); ++i) dims.push_back(merged[i]);
  // One unknown dimension is what Reshape can find by itself; for more it must look at x.
  if (std::count(dims.begin(), dims.end(), kUnknownDim) <= 1) return Reshape(y, Shape(dims));
  const Output front = Slice(ShapeOf(x), std::vector<int64_t>{0}, std::vector<int64_t>{leading});
  const std::vector<int64_t> rest(dims.begin() + leading, dims.end());
  const Output back = Constant(
      x.graph(), Tensor::Of<int64_t>({int64_t(rest.size())}, std::span<const int64_t>(rest)));
  return Reshape(y, Input(Concat({front, back}, 0)));
}

}  // namespace tutti::nn
