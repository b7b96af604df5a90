#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Order, checks, branches and loops.
namespace tutti {

// Does nothing; a point for control dependencies.
const Node* NoOp(Graph& graph, std::string_view name = "");

// Done when all of `nodes` are done.
const Node* Group(Graph& graph, std::span<const Node* const> nodes, std::string_view name = "");

// Fails the run with INVALID_ARGUMENT, the message and the values of `data`, unless every element
// of `condition` (bool) is true. It runs when it is a target or when something runs after it:
//   ControlScope checked(graph, {Assert(Less(i, n), {{i, n}}, "i is too large")});
const Node* Assert(Input condition, std::span<const Output> data = {},
                   std::string_view message = "", std::string_view name = "");

// x, a floating-point value. Fails the run with INVALID_ARGUMENT, the message and the first element
// that is NaN or infinite, when there is one. Gradients are checked likewise.
Output CheckNumerics(Input x, std::string_view message = "", std::string_view name = "");

struct PrintOptions {
  int64_t most_values = 16;  // longer tensors are shortened in the middle
};

// x, printed on stderr after the message whenever it is computed.
Output Print(Input x, std::string_view message = "", const PrintOptions& options = {},
             std::string_view name = "");

// The values that then_branch returns if `predicate` (a bool scalar) is true, else those of
// else_branch. Each function is called once, while the graph is built, and adds the nodes of its
// branch; only the nodes of the chosen branch run. Branches can use values of the enclosing graph.
// Both return the same number of values, at least one, of the same dtypes and compatible shapes.
// Nodes with effects (Assign, Print) run with their branch even if no returned value needs them. A
// branch that updates a Variable sees its own updates; a Variable that it only reads has the value
// from when the If starts.
//
//   Output y = If(Greater(x, 0.0f), [&] { return std::vector{Mul(x, x)}; },
//                 [&] { return std::vector{Neg(x)}; })[0];
// If and While can be nested at most 64 deep.
std::vector<Output> If(Input predicate, const std::function<std::vector<Output>()>& then_branch,
                       const std::function<std::vector<Output>()>& else_branch,
                       std::string_view name = "");

struct WhileOptions {
  int64_t max_iterations = 0;  // the loop ends after so many; 0: no limit
  // Shape invariants of the loop variables, one each, where less is known than of the initial
  // values: {Shape{kUnknownDim}} for a vector that grows. Empty: the shapes of the initial values.
  std::vector<Shape> shapes = {};
};

// Repeats `variables = body(variables)` while condition(variables), a bool scalar, is true,
// starting from the initial values, and returns the last values. Each function is called once,
// while the graph is built; see If for the values that it may use and the nodes that run. Loop
// variables keep their dtypes and shapes.
//
//   std::vector<Output> end = While({i, x},
//       [&](std::span<const Output> v) { return Less(v[0], n); },
//       [&](std::span<const Output> v) { return std::vector{Add(v[0], 1), Mul(v[1], w)}; });
//
// Differentiable in the loop variables and in what the body uses: the gradient runs the loop
// backwards over the loop variables' values at the start of each iteration, which are kept for it
// then, and computes the body again.
std::vector<Output> While(std::span<const Output> initial,
                          const std::function<Output(std::span<const Output>)>& condition,
                          const std::function<std::vector<Output>(std::span<const Output>)>& body,
                          const WhileOptions& options = {}, std::string_view name = "",
                          std::source_location where = std::source_location::current());
inline std::vector<Output> While(
    std::initializer_list<Output> initial,
    const std::function<Output(std::span<const Output>)>& condition,
    const std::function<std::vector<Output>(std::span<const Output>)>& body,
    const WhileOptions& options = {}, std::string_view name = "",
    std::source_location where = std::source_location::current()) {
  return While(std::span(initial.begin(), initial.size()), condition, body, options, name, where);
}

// The outputs of a While node with n loop variables: the n results, then for each loop variable
// its values at the start of every iteration, stacked ([iterations, ...]), then the number of
// iterations (int64). The values are kept only where they are used.
int NumLoopVariables(const Node& while_node);

}  // namespace tutti
