#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "tutti/graph/input.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"

// What the layers of this folder are made of; also for layers of your own.
namespace tutti::nn {

// The variable `name` under the current name scope: a new one, or inside a ReuseScope the one that
// was made before.
Output GetVariable(Graph& graph, const Initializer& initializer, std::string_view name,
                   const VariableOptions& options = {},
                   std::source_location where = std::source_location::current());

// The variable `name`, of `shape` and the type of x, for a layer that multiplies or adds it to x.
// Throws Error, naming the layer and the line of its call, when x is not floating-point, or the
// initialiser is empty or gives another shape or type.
Output GetWeights(const Input& x, std::string_view layer, const InitializerOf& initializer,
                  const Shape& shape, std::string_view name, const VariableOptions& options = {});

// While it lives, layers use variables that were made before, so that a model can be built twice,
// to train and to evaluate, on the same weights:
//
//   Output logits = Model(images, {.training = true});
//   nn::ReuseScope reuse(graph);
//   Output predicted = Model(test_images, {.training = false});
//
// New nodes get the name scope `name`; below it a model builds the same names as the first time,
// and GetVariable looks for them under `source` (the name scope of the first time with its slash;
// empty: the root). A variable that is not there is an Error that names it. One at a time per
// thread.
class ReuseScope {
 public:
  explicit ReuseScope(Graph& graph, std::string_view source = "", std::string_view name = "reuse");
  ~ReuseScope();
  ReuseScope(const ReuseScope&) = delete;
  ReuseScope& operator=(const ReuseScope&) = delete;

  // The full name that a variable has that would be called `name` without this scope.
  std::string SourceName(std::string_view name) const;

  static const ReuseScope* Current();  // of this thread; null outside any

 private:
  NameScope scope_;
  std::string prefix_;  // of scope_
  std::string source_;
  const ReuseScope* previous_;
};

// What `initializer` gives for `shape` and `dtype`. Throws Error, naming the layer and `where`,
// when it is empty or gives another shape or type.
Initializer InitializerFor(std::string_view layer, const InitializerOf& initializer,
                           const Shape& shape, DType dtype, std::string_view name,
                           const std::source_location& where);

// The graph that a layer's input belongs to. Throws Error for a literal and an empty Output.
Graph& GraphOf(const Input& x, std::string_view layer);

// Dimension `axis` of x (negative from the end), which must be known. Throws Error naming the
// layer.
int64_t KnownDim(const Input& x, int axis, std::string_view layer);

// x with all dimensions but the last `kept` merged into one; x itself when there is just one.
Output MergeLeading(Input x, int kept);
// The reverse: y [merged, rest...] with the leading dimensions of x, all but the last `kept`. The
// rest must be known.
Output UnmergeLeading(Input y, Output x, int kept);

}  // namespace tutti::nn
