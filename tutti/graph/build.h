#pragma once

#include <optional>
#include <source_location>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"
#include "tutti/graph/input.h"

namespace tutti {

// Graph::Add for code that returns absl::Status.
absl::StatusOr<Node*> AddNode(Graph& graph, NodeSpec spec);

// The value of an output if the graph determines it: a Constant, the Shape of a known shape, or one
// of the integer operations on these that shape computations use. Otherwise nullopt.
std::optional<Tensor> ConstantValue(Output output);

// How the functions of graph/ops make a node:
//   Output Relu(Input x, std::string_view name) { return OpBuilder("Relu", name).In(x).Build(); }
// Literals among the inputs become Constants, numbers of the dtype of the first input that is an
// Output. Throws Error, also for a number that this dtype cannot hold.
class OpBuilder {
 public:
  OpBuilder(std::string_view op, std::string_view name);
  OpBuilder& In(const Input& input);
  OpBuilder& In(std::span<const Output> inputs);
  OpBuilder& On(Graph& graph);  // for ops without inputs
  OpBuilder& At(const std::source_location& where);
  OpBuilder& After(std::span<const Node* const> nodes);
  // The dtype that C++ numbers among the inputs take, where it is not that of the first Output.
  OpBuilder& NumbersAs(DType dtype);
  // Accepts what AttrValue holds, and int for int64_t, float for double, const char* for
  // std::string.
  template <typename T>
  OpBuilder& Attr(std::string_view attr_name, T value) {
    if constexpr (std::is_same_v<T, bool> || !std::is_arithmetic_v<T>) {
      if constexpr (std::is_convertible_v<T, std::string>) {
        return Set(attr_name, std::string(value));
      } else {
        return Set(attr_name, AttrValue(std::move(value)));
      }
    } else if constexpr (std::is_integral_v<T>) {
      return Set(attr_name, int64_t(value));
    } else {
      return Set(attr_name, double(value));
    }
  }

  Node* BuildNode();
  Output Build() { return BuildNode()->output(0); }
  std::vector<Output> BuildAll();

 private:
  OpBuilder& Set(std::string_view attr_name, AttrValue value);

  NodeSpec spec_;
  Graph* graph_ = nullptr;
  DType numbers_as_ = DType::kInvalid;
  std::vector<std::optional<Tensor>>
      literals_;                       // parallel to spec_.inputs; set where the input is a literal
  std::vector<size_t> number_inputs_;  // those of them that are C++ numbers
};

// For a function that adds several nodes or none: takes what was added to `graph` since
// construction out again, with the names it took, unless Keep() was called. Outputs of what was
// taken out must not be used. REQUIRES: `graph` lies inside no If or While.
class AllOrNothing {
 public:
  explicit AllOrNothing(Graph& graph) : graph_(graph), size_(graph.size()) {}
  ~AllOrNothing();
  AllOrNothing(const AllOrNothing&) = delete;
  AllOrNothing& operator=(const AllOrNothing&) = delete;
  void Keep() { kept_ = true; }

 private:
  Graph& graph_;
  int64_t size_;
  bool kept_ = false;
};

// While a SubgraphScope lives on this thread, op functions add to its graph, even when all their
// inputs belong to an enclosing one (those are captured). If and While build their bodies under it.
class SubgraphScope {
 public:
  explicit SubgraphScope(Graph* graph);
  ~SubgraphScope();
  SubgraphScope(const SubgraphScope&) = delete;
  SubgraphScope& operator=(const SubgraphScope&) = delete;

 private:
  Graph* previous_;
};
Graph* SubgraphBeingBuilt();

}  // namespace tutti
