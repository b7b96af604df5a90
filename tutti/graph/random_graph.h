#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tutti/graph/graph.h"

// Random graphs for the tests of the text and protobuf forms: every kind of attribute, odd names
// and values, control edges, devices, subgraphs. Included by tests only.
namespace tutti {

class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {}

  void Fill(Graph& graph, int depth = 0) {
    const int64_t count = Below(12) + (Below(4) == 0 ? 0 : 1);
    for (int64_t i = 0; i < count; ++i) AddNode(graph, depth);
  }

  uint64_t Bits() { return random_(); }
  int64_t Below(int64_t limit) { return int64_t(random_() % uint64_t(limit)); }

  std::string Text() {
    std::string text(size_t(Below(8)), ' ');
    for (char& c : text) c = Below(3) == 0 ? char(Below(256)) : char('a' + Below(26));
    return text;
  }

  Tensor RandomTensor() {
    std::vector<int64_t> dims(size_t(Below(4)));
    for (int64_t& dim : dims) dim = Below(10) == 0 ? 0 : 1 + Below(5);
    const DType dtype = kAllDTypes[Below(std::size(kAllDTypes))];
    Tensor tensor = Tensor::Zeros(dtype, Shape(dims));
    auto* bytes = static_cast<uint8_t*>(tensor.raw());
    const bool same = Below(4) == 0;
    for (size_t i = 0; i < tensor.bytes(); ++i) {
      bytes[i] = same && i >= SizeOf(dtype) ? bytes[i - SizeOf(dtype)] : uint8_t(Bits());
      if (dtype == kBool) bytes[i] &= 1;
    }
    return tensor;
  }

 private:
  void AddNode(Graph& graph, int depth) {
    NodeSpec spec;
    if (Below(3) > 0) {
      spec.name = "n" + std::to_string(graph.size()) + (Below(4) == 0 ? "/a.b-c_D" : "");
    }
    if (Below(4) == 0) spec.device = Below(2) == 0 ? "/job:worker/task:1/cpu:0" : "x" + Text();
    while (graph.size() > 0 && Below(3) == 0) {
      spec.control_inputs.push_back(graph.nodes()[size_t(Below(graph.size()))].get());
    }
    const Output a = AnyMatrix(graph);
    switch (Below(5)) {
      case 0:
        spec.op = "Placeholder";
        spec.attrs = {{"dtype", kFloat32}, {"shape", Shape{4, 4}}};
        break;
      case 1:
        spec.op = "Constant";
        spec.attrs = {{"value", RandomTensor()}};
        break;
      case 2:
        spec.op = "NoOp";
        break;
      default:
        spec.op = a ? "MatMul" : "Arg";
        if (a) {
          spec.inputs = {a, AnyMatrix(graph)};
          if (Below(2) == 0) spec.attrs = {{"transpose_a", Below(2) == 0}};
        } else {
          spec.attrs = {{"dtype", kFloat32}, {"shape", Shape{4, 4}}};
        }
    }
    while (Below(3) == 0) SetAttr(spec.attrs, "_" + Text(), Value(graph, depth));
    graph.Add(std::move(spec));
  }

  Output AnyMatrix(const Graph& graph) {
    std::vector<Output> found;
    for (const auto& node : graph.nodes()) {
      if (node->num_outputs() > 0 && node->type(0).dtype == kFloat32 &&
          node->type(0).shape == Shape{4, 4}) {
        found.push_back(node->output());
      }
    }
    return found.empty() ? Output{} : found[size_t(Below(int64_t(found.size())))];
  }

  double Real() {
    if (Below(2) == 0) return std::bit_cast<double>(Bits());
    return double(Below(100)) / 8;
  }

  AttrValue Value(Graph& graph, int depth) {
    const auto count = size_t(Below(4));
    switch (Below(11)) {
      case 0:
        return Below(2) == 0;
      case 1:
        return int64_t(Bits());
      case 2:
        return Real();
      case 3:
        return Text();
      case 4:
        return DType(Below(int64_t(DType::kBool) + 1));
      case 5:
        return Below(4) == 0 ? Shape::UnknownRank() : Shape{Below(9), -1, Below(3) - 1};
      case 6:
        return Below(4) == 0 ? Tensor() : RandomTensor();
      case 7: {
        std::vector<int64_t> values(count);
        for (int64_t& value : values) value = int64_t(Bits());
        return values;
      }
      case 8: {
        std::vector<double> values(count);
        for (double& value : values) value = Real();
        return values;
      }
      case 9: {
        std::vector<std::string> values(count);
        for (std::string& value : values) value = Text();
        return values;
      }
      default: {
        if (depth >= 3) return std::shared_ptr<const Subgraph>();
        auto subgraph = std::make_shared<Subgraph>();
        subgraph->graph = std::make_unique<Graph>(&graph);
        Fill(*subgraph->graph, depth + 1);
        for (const auto& node : subgraph->graph->nodes()) {
          if (node->op() == "Arg") subgraph->args.push_back(node->output());
          if (node->num_outputs() > 0 && Below(2) == 0) subgraph->results.push_back(node->output());
        }
        return std::shared_ptr<const Subgraph>(subgraph);
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace tutti
