#include <array>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
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

// The step y = -(-(-x)) of a session of one or two devices. On two, the value goes to the other
// device and comes back.
class CutStep {
 public:
  explicit CutStep(int devices)
      : x_(Placeholder(graph_, kFloat32, Shape{})),
        y_(Build(devices)),
        session_(graph_, {.devices = devices, .cores_per_device = 1, .optimize = false}) {}

  void Run() {
    const Feed feeds[] = {{x_, Tensor::Scalar(3.0f)}};
    Tensor result;
    session_.RunInto(feeds, {&y_, 1}, {}, {&result, 1});
    if (result.scalar<float>() != -3)
      ThrowInvalidArgument("a step over devices gave a wrong value");
  }

 private:
  Output Build(int devices) {
    Output middle = Neg(x_);
    {
      const DeviceScope scope(graph_, devices == 2 ? "/cpu:1" : "/cpu:0");
      middle = Neg(middle);
    }
    return Neg(middle);
  }

  Graph graph_;
  Output x_, y_;
  Session session_;
};

// The time of each of many calls, in seconds.
template <typename Run>
std::vector<double> TimeCalls(const Run& run, double seconds) {
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

std::vector<double> TimeRuns(Session& session, const Node* target, double seconds) {
  const std::array<const Node*, 1> targets = {target};
  return TimeCalls([&] { session.RunInto({}, {}, targets, {}); }, seconds);
}

}  // namespace

double CutCost(double seconds) {
  constexpr int kRounds = 10;
  CutStep one(1), two(2);
  std::vector<double> costs;
  for (int round = 0; round < kRounds; ++round) {
    const double whole = Median(TimeCalls([&] { one.Run(); }, seconds / kRounds / 2));
    costs.push_back(Median(TimeCalls([&] { two.Run(); }, seconds / kRounds / 2)) - whole);
  }
  return Median(costs);
}

void BenchNull(const BenchOptions& options) {
  Graph graph;
  const Node* chain = Chain(graph);
  const Node* side_by_side = SideBySide(graph);
  const Node* single = NoOp(graph);
  Session session(graph, {.cores_per_device = 1});
  const double seconds = options.seconds / 4;
  const double chain_time = Median(TimeRuns(session, chain, seconds));
  Report({"null", "chain of 1000", kNodes / chain_time, "nodes/s"}, options.json);
  const double side_time = Median(TimeRuns(session, side_by_side, seconds));
  Report({"null", "1000 side by side", kNodes / side_time, "nodes/s"}, options.json);
  const double single_time = Median(TimeRuns(session, single, seconds));
  Report({"null", "run of one node", single_time * 1e6, "us"}, options.json);
  Report({"null", "more for a step cut over 2 devices", CutCost(seconds) * 1e6, "us"},
         options.json);
}

}  // namespace tutti::tools
