#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/autodiff/gradients.h"
#include "tutti/graph/graph.h"

namespace tutti {

// What a gradient function sees: a node and the gradients of its outputs; and what it sets: the
// gradients of its inputs. The functions of graph/ops build what is needed; they may throw Error.
class GradientContext {
 public:
  GradientContext(const Node& node, std::vector<GradientValue> output_gradients)
      : node_(node), outputs_(std::move(output_gradients)), inputs_(node.inputs().size()) {}

  const Node& node() const { return node_; }
  Output input(int i) const { return node_.input(i); }
  Output output(int i) const { return node_.output(i); }

  // The gradient of output i as a dense value; empty when nothing depends on that output.
  Output gradient(int i = 0);
  // Zeros of the output's shape in place of an empty one.
  Output GradientOrZeros(int i);
  bool NeedsInput(int i) const { return needed_.empty() || needed_[i]; }
  void SetNeeded(std::vector<bool> needed) { needed_ = std::move(needed); }

  // Inputs that are not set get no gradient.
  void Set(int i, Output gradient) { inputs_[i] = GradientValue{gradient}; }
  // Only the rows `indices` of input i have a gradient, `rows` ([indices, ...]); rows may repeat.
  void SetRows(int i, Output indices, Output rows) {
    inputs_[i] = GradientValue{{}, indices, rows};
  }

  std::vector<GradientValue>& inputs() { return inputs_; }

 private:
  const Node& node_;
  std::vector<GradientValue> outputs_;
  std::vector<GradientValue> inputs_;
  std::vector<bool> needed_;
};

using GradientFunction = std::function<void(GradientContext&)>;

// The gradient functions by op. Filled once from the families (register.cc); read-only and
// thread-safe after.
class GradientRegistry {
 public:
  static GradientRegistry& Global();
  void Add(std::string_view op, GradientFunction function);
  const GradientFunction* Find(std::string_view op) const;

 private:
  std::map<std::string, GradientFunction, std::less<>> functions_;
};

}  // namespace tutti
