#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/graph.h"
#include "tutti/tensor/tensor.h"

// TensorBoard's events as serialised messages (tensorflow.Event). `wall_time` is in seconds since
// 1970.
namespace tutti {

// What a summary may hold, by the tag under which TensorBoard shows it.
struct SummaryValues {
  std::map<std::string, double> scalars = {};
  std::map<std::string, Tensor> histograms = {};  // of the elements, of any type of number
  std::map<std::string, std::string> texts = {};  // Markdown
};

std::string FileVersionEvent(double wall_time);
// A process begins at `step`: what earlier ones wrote for later steps is not to be shown.
std::string SessionStartEvent(double wall_time, int64_t step);
std::string SummaryEvent(double wall_time, int64_t step, const SummaryValues& values);
// The first `nodes` nodes of the graph with their ops, inputs, devices and shapes; no attributes
// and no values.
std::string GraphEvent(double wall_time, const Graph& graph, int64_t nodes);

// How often the elements of a tensor fall into ranges that grow by a tenth, as TensorBoard wants
// them. Elements that are not finite are left out of everything.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> limits = {};  // upper ends of ranges that hold something, growing
  std::vector<double> counts = {};
};
Histogram HistogramOf(const Tensor& values);

}  // namespace tutti
