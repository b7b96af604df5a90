#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"

namespace tutti {

// A declared attribute of an op: its type and, unless it must be given, its default.
struct AttrDef {
  AttrDef(std::string attr_name, AttrValue default_value)
      : name(std::move(attr_name)),
        type(TypeOf(default_value)),
        default_value(std::move(default_value)) {}
  AttrDef(std::string attr_name, AttrType required_type)
      : name(std::move(attr_name)), type(required_type) {}

  std::string name;
  AttrType type;
  std::optional<AttrValue> default_value;
};

// What autodiff does at an op.
enum class Gradient {
  kDefined,  // autodiff has a gradient function for it
  kZero,  // the result does not depend smoothly on the inputs (Shape, ArgMax, Floor): the path ends
          // here
  kNone,  // no gradient exists: an error when it is on the path
};

class InferContext;

// The definition of an op: its signature, its type and shape function, and what passes may assume
// of it.
struct OpDef {
  std::string name = {};
  // Input names, for messages. "&variable" must be a Variable node and is no read of its value;
  // "values..." (last) takes any number, "&variable,gradient..." any number of whole groups.
  std::vector<std::string> inputs = {};
  // The ops that a "&" input may name instead of Variable: a queue, a mutex.
  std::vector<std::string> refers_to = {};
  std::vector<AttrDef> attrs = {};
  // Checks the inputs and attributes and sets the type of every output.
  std::function<absl::Status(InferContext&)> infer = {};
  Gradient gradient = Gradient::kNone;
  bool stateful = false;  // has effects or reads state: never folded, merged, or run twice
  // Stateful, but only reads state or draws random numbers: running it has no effect on other
  // nodes.
  bool without_effects = false;
  // Stateful so that it always runs, but all that it can do is end the step with an error (Assert).
  bool only_checks = false;
  bool commutative = false;  // two inputs, in any order
  // Has its value before the step begins, and no kernel (Constant, Placeholder, Arg).
  bool source = false;
  bool view = false;   // output 0 has the bytes of input 0 under another shape (Reshape)
  bool async = false;  // may wait for something outside the step (Dequeue, Recv)
  // Starts as soon as its inputs are ready, regardless of its place in the graph, so that its wait
  // overlaps with the computation of other nodes.
  bool early = false;
  // All ranks of a group run it together, through the communicator of the worker.
  bool collective = false;
  // A collective whose values travel as one. Output i has the type of input i, and its memory where
  // the plan puts the inputs side by side (BucketOffsets).
  bool bucket = false;
  // Carries a value between the parts of a step, through the step's rendezvous (Send, Recv).
  bool transfer = false;
  // Passes its inputs to a receiver that may hold them longer than the step (Send).
  bool keeps_inputs = false;
  // Its "&" inputs are read where they lie, and not changed (rows of a table).
  bool reads_references = false;
  bool internal = false;  // only compiler passes make it; not part of the sweep over public ops
  // Its kernels set their outputs themselves (a variable's value, what came from a queue): no
  // memory is planned for them.
  bool provides_outputs = false;

  int fixed_inputs() const;  // how many names do not end in "..."
  bool variadic() const { return !inputs.empty() && inputs.back().ends_with("..."); }
  bool has_effects() const { return (stateful || async) && !without_effects; }
  // True if running it has no effect except its outputs or an error.
  bool only_computes() const { return !has_effects() || only_checks; }
  // May an input be held for longer than the node runs? An asynchronous kernel may do that, too.
  bool may_keep_inputs() const { return keeps_inputs || async; }
  bool has_subgraphs() const;  // If, While: some attribute is a subgraph
  bool IsVariableInput(int i) const;
  std::string InputName(int i) const;  // "a", "values[3]"
  const AttrDef* FindAttr(std::string_view attr_name) const;
};

// All ops, by name. Filled once, before first use, from the families in graph/ops (see
// ops/register.cc). Thread-safe after that.
class OpRegistry {
 public:
  static OpRegistry& Global();
  void Add(OpDef def);
  const OpDef* Find(std::string_view name) const;
  const std::map<std::string, OpDef, std::less<>>& all() const { return ops_; }

 private:
  std::map<std::string, OpDef, std::less<>> ops_;
};

// What a type and shape function sees and sets. Shapes may be partly unknown; when the graph is
// compiled for concrete feeds, the same function runs again with known ones.
class InferContext {
 public:
  InferContext(const OpDef& def, const NodeSpec& spec, std::vector<ValueType>& outputs)
      : def_(def), spec_(spec), outputs_(outputs) {}

  const OpDef& def() const { return def_; }
  const NodeSpec& spec() const { return spec_; }
  int num_inputs() const { return int(spec_.inputs.size()); }
  DType dtype(int i) const { return spec_.inputs[i].dtype(); }
  const Shape& shape(int i) const { return spec_.inputs[i].shape(); }

  // REQUIRES: the op declares the attribute with type T (bool, int64_t, double, std::string, ...).
  template <typename T>
  const T& attr(std::string_view name) const {
    return std::get<T>(*FindAttr(name));
  }
  const AttrValue* FindAttr(std::string_view name) const;

  // The value of input i where the graph alone tells it (a Constant, the Shape of something known,
  // ...).
  std::optional<Tensor> ConstantInput(int i) const;
  // Input i, an integer vector, understood as a shape, with unknown dimensions where the graph does
  // not tell.
  absl::StatusOr<Shape> ShapeInput(int i) const;

  void SetOutput(int i, DType dtype, const Shape& shape);

  // Checks with messages that name the inputs. RequireSameDType: all inputs from `first` on.
  absl::Status RequireSameDType(int first = 0) const;
  absl::Status RequireDType(int i, DType dtype) const;
  absl::Status RequireFloating(int i) const;
  absl::Status RequireIndex(int i) const;  // int32 or int64
  absl::Status RequireRank(int i, int rank) const;
  absl::Status RequireRankAtLeast(int i, int rank) const;
  // `axis` of input i as 0..rank-1, negative counting from the end.
  absl::StatusOr<int> NormalizeAxis(int64_t axis, int rank) const;

  // An INVALID_ARGUMENT; the graph puts the op, the node's name and the source line in front.
  template <typename... Args>
  absl::Status Error(fmt::format_string<Args...> format, Args&&... args) const {
    return InvalidArgument(format, std::forward<Args>(args)...);
  }
  // `a is float32 [128, 784] from "x"`.
  std::string DescribeInput(int i) const;

 private:
  const OpDef& def_;
  const NodeSpec& spec_;
  std::vector<ValueType>& outputs_;
};

}  // namespace tutti
