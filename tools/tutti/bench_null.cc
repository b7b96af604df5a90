#include <array>
#include <vector>

#include "tools/tutti/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

constexpr int kNodes = 1000;

const Node* Chain(Graph& graph) {
  const Node* last = NoOp(graph);
  for (int i = 1; i < kNodes; ++i) {
    ControlScope after(graph, {last});
    last = NoOp(graph);
  }
  return last;
}

// kNodes in all, the one that waits for the others included.
const Node* SideBySide(Graph& graph) {
  std::vector<const Node*> nodes;
  for (int i = 1; i < kNodes; ++i) nodes.push_back(NoOp(graph));
  return Group(graph, nodes);
}

// The time of each of many runs, in seconds.
std::vector<double> TimeRuns(Session& session, const Node* target, double seconds) {
  const std::array<const Node*, 1> targets = {target};
  const auto run = [&] { session.RunInto({}, {}, targets, {}); };
  for (int i = 0; i < 20; ++i) run();
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  for (int64_t before = NowNanos(); before < end;) {
    run();
    const int64_t after = NowNanos();
    times.push_back(double(after - before) * 1e-9);
    before = after;
  }
  return times;
}

}  // namespace

void BenchNull(const BenchOptions& options) {
  Graph graph;
  const Node* chain = Chain(graph);
  const Node* side_by_side = SideBySide(graph);
  const Node* single = NoOp(graph);
  Session session(graph, {.cores_per_device = 1});
  const double seconds = options.seconds / 3;
  const double chain_time = Median(TimeRuns(session, chain, seconds));
  Report({"null", "chain of 1000", kNodes / chain_time, "nodes/s"}, options.json);
  const double side_time = Median(TimeRuns(session, side_by_side, seconds));
  Report({"null", "1000 side by side", kNodes / side_time, "nodes/s"}, options.json);
  const double single_time = Median(TimeRuns(session, single, seconds));
  Report({"null", "run of one node", single_time * 1e6, "us"}, options.json);
}

}  // namespace tutti::tools
