#include "tutti/train/estimator/bad_values.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {
namespace {

// How many elements of `value` are not finite; 0 for whole numbers.
int64_t CountBad(const Tensor& value) {
  if (!value.valid() || !IsFloating(value.dtype())) return 0;
  int64_t bad = 0;
  VisitDType(value.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_integral_v<T>) {
      for (const T& element : value.values<T>())
        bad += std::isfinite(double(float(element))) ? 0 : 1;
    }
  });
  return bad;
}

std::string Describe(const Node& node, const Tensor& value, int64_t bad) {
  return fmt::format("{} {} has {} of {} elements that are not finite", node.Describe(),
                     value.shape().ToString(), bad, value.elements());
}

// What `loss` is computed from, in the order of computation.
std::vector<Output> ValuesUnder(Output loss) {
  const Graph& graph = loss.graph();
  std::vector<bool> under(size_t(graph.size()), false);
  under[size_t(loss.node->id())] = true;
  std::vector<Output> values;
  for (int64_t id = loss.node->id(); id >= 0; --id) {
    if (!under[size_t(id)]) continue;
    const Node& node = *graph.nodes()[size_t(id)];
    for (const Output& input : node.inputs()) under[size_t(input.node->id())] = true;
    for (int i = 0; i < node.num_outputs(); ++i) {
      if (IsFloating(node.type(i).dtype)) values.push_back(node.output(i));
    }
  }
  return {values.rbegin(), values.rend()};
}

// The first bad value of this worker; empty if all are fine.
std::string FindFirstBad(Session& session, Output loss, std::span<const Feed> feeds) {
  for (const auto& [placeholder, value] : feeds) {
    if (const int64_t bad = CountBad(value); bad > 0) {
      return Describe(*placeholder.node, value, bad);
    }
  }
  const std::vector<Output> outputs = ValuesUnder(loss);
  const std::vector<Tensor> values = session.Run(feeds, outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (const int64_t bad = CountBad(values[i]); bad > 0) {
      return Describe(*outputs[i].node, values[i], bad);
    }
  }
  return "";
}

}  // namespace

void ThrowBadValues(Peers& peers, int rank, Output loss, const StepEnd& end) {
  std::string own = FindFirstBad(end.session, loss, end.feeds);
  if (!own.empty()) {
    own = fmt::format("the loss of worker {} is not finite; the first bad tensor is {}", rank, own);
  } else if (!end.bad_gradient.empty()) {
    own = fmt::format("the gradient of \"{}\" of worker {} is not finite, though its loss is",
                      end.bad_gradient, rank);
  }
  for (const std::string& found : peers.Gather("bad_values", own)) {
    if (found.empty()) continue;
    throw Error(
        Code::kOutOfRange,
        fmt::format("step {}: {}; a smaller learning rate or clipping may help", end.step, found));
  }
  throw Error(Code::kOutOfRange,
              fmt::format("step {}: the loss is {}, though every worker's own is finite", end.step,
                          end.loss));
}

void CheckLastUpdate(Peers& peers, int rank, Output loss, const TrainingEnd& end) {
  std::string bad;
  if (end.samples > 0 && CountBad(end.session.Run(end.feeds, std::span(&loss, 1))[0]) > 0) {
    bad = fmt::format(
        "the loss of worker {} is not finite after the update; the first bad tensor "
        "is {}",
        rank, FindFirstBad(end.session, loss, end.feeds));
  }
  for (const std::string& found : peers.Gather("last update", bad)) {
    if (found.empty()) continue;
    throw Error(
        Code::kOutOfRange,
        fmt::format("step {}: {}; a smaller learning rate or clipping may help", end.step, found));
  }
}

}  // namespace tutti
