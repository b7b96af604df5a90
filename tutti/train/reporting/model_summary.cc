#include "tutti/train/reporting/model_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_set>

#include "tutti/topology/quantity.h"

namespace tutti {
namespace {

int64_t Elements(const Shape& shape) {
  int64_t elements = 1;
  for (int i = 0; shape.has_rank() && i < shape.rank(); ++i) {
    elements *= std::max<int64_t>(shape[i], 1);
  }
  return elements;
}

// Products count a multiplication and an addition for each term; all other ops one operation for
// each element that they make, and what only looks at data none.
int64_t OperationsOf(const Node& node) {
  static const std::set<std::string_view> kFree = {
      "Constant", "Placeholder", "Variable",   "Reshape", "Identity", "Shape",  "Cast",
      "Concat",   "Slice",       "ExpandDims", "Squeeze", "Pack",     "Gather", "StopGradient"};
  if (kFree.contains(node.op()) || node.num_outputs() == 0) return 0;
  const int64_t made = Elements(node.type(0).shape);
  if (node.op() == "MatMul" || node.op() == "BatchMatMul") {
    const Shape& a = node.input(0).shape();
    const Shape& y = node.type(0).shape;
    if (!a.has_rank() || a.rank() < 2 || !y.has_rank() || y.rank() < 2) return made;
    // The dimension of the last two of a that is not y's is summed over.
    const int64_t rows = std::max<int64_t>(y[y.rank() - 2], 1);
    const int64_t part =
        std::max<int64_t>(a[a.rank() - 2], 1) * std::max<int64_t>(a[a.rank() - 1], 1);
    return 2 * made * (part / rows);
  }
  if (node.op() == "Conv2D") {
    const Shape& filter = node.input(1).shape();
    return 2 * made * (Elements(filter) / std::max<int64_t>(filter[-1], 1));
  }
  return made;
}

// The scope of a variable is a layer; so is everything below it. Other nodes belong to their
// outermost scope, or stand alone.
class Layers {
 public:
  void AddScope(const std::string& variable) {
    if (const size_t slash = variable.rfind('/'); slash != std::string::npos) {
      scopes_.insert(variable.substr(0, slash));
    }
  }
  std::string Of(const std::string& name) const {
    for (size_t slash = name.rfind('/'); slash != std::string::npos && slash > 0;
         slash = name.rfind('/', slash - 1)) {
      if (scopes_.contains(name.substr(0, slash))) return name.substr(0, slash);
    }
    return name.substr(0, name.find('/'));
  }

 private:
  std::set<std::string> scopes_;
};

std::string Short(double value) {
  for (const auto& [unit, name] : {std::pair(1e9, " G"), {1e6, " M"}, {1e3, " k"}}) {
    if (value >= unit) return fmt::format("{:.3g}{}", value / unit, name);
  }
  return fmt::format("{:.0f}", value);
}

// "421,642"
std::string Grouped(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace

std::vector<LayerSummary> SummarizeLayers(Output loss, int64_t nodes,
                                          const std::vector<Output>& trained) {
  const Graph& graph = loss.graph();
  std::vector<bool> under(size_t(graph.size()), false);
  under[size_t(loss.node->id())] = true;
  Layers layers;
  for (int64_t id = std::min(loss.node->id(), nodes - 1); id >= 0; --id) {
    if (!under[size_t(id)]) continue;
    const Node& node = *graph.nodes()[size_t(id)];
    for (const Output& input : node.inputs()) under[size_t(input.node->id())] = true;
    if (node.op() == "Variable") layers.AddScope(node.name());
  }
  const std::unordered_set<Output, OutputHash> trains(trained.begin(), trained.end());
  std::vector<LayerSummary> rows;
  std::map<std::string, size_t> row_of;
  for (int64_t id = 0; id < nodes; ++id) {
    const Node& node = *graph.nodes()[size_t(id)];
    if (!under[size_t(id)] || node.op() == "Constant" || node.op() == "Placeholder") continue;
    const std::string layer = layers.Of(node.name());
    const auto [at, is_new] = row_of.try_emplace(layer, rows.size());
    if (is_new) rows.push_back({.name = layer});
    LayerSummary& row = rows[at->second];
    if (node.op() == "Variable") {
      const int64_t count = Elements(node.type(0).shape);
      row.parameters += count;
      row.bytes += count * int64_t(SizeOf(node.type(0).dtype));
      if (trains.contains(node.output())) row.trained += count;
    } else if (node.num_outputs() > 0) {
      row.output = node.type(0).shape.ToString();
      row.operations += OperationsOf(node);
    }
  }
  // What neither holds nor computes anything, such as a Reshape, is no layer.
  std::erase_if(rows,
                [](const LayerSummary& row) { return row.parameters == 0 && row.operations == 0; });
  return rows;
}

std::string RenderLayers(const std::vector<LayerSummary>& layers) {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"layer", "output", "parameters", "bytes", "operations"}};
  LayerSummary total{.name = "total"};
  const auto add = [&](const LayerSummary& layer) {
    rows.push_back({layer.name, layer.output, Grouped(layer.parameters),
                    topology::FormatBytes(double(layer.bytes)), Short(double(layer.operations))});
  };
  for (const LayerSummary& layer : layers) {
    add(layer);
    total.parameters += layer.parameters;
    total.trained += layer.trained;
    total.bytes += layer.bytes;
    total.operations += layer.operations;
  }
  add(total);
  std::array<size_t, 5> widths = {};
  for (const Row& row : rows) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("  {:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}\n", row[0], widths[0], row[1],
                        widths[1], row[2], widths[2], row[3], widths[3], row[4], widths[4]);
  }
  if (total.trained != total.parameters) {
    text += fmt::format("  {} of the parameters are trained\n", Grouped(total.trained));
  }
  return text;
}

}  // namespace tutti
