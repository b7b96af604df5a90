// What the cost model predicts, and what the clock says.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/placement_models.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/cores.h"
#include "tutti/graph/build.h"
#include "tutti/placement/place_program.h"
#include "tutti/runtime/measure/calibrate.h"

namespace tutti::tools {
namespace {

struct Times {
  // Seconds. Predictions are made from estimates alone: the first before the second placement, the
  // other of the placement whose steps were measured.
  double first_predicted = 0, predicted = 0;
  double measured = 0;  // the median of steps
  double fastest = 0;   // of the steps: what is left of it on a machine with other work
};

// A model on so many devices of one core.
Times MeasureModel(std::string_view name, int devices, const std::string& method, double seconds) {
  const StepModel model = MakePlacementModel(name);
  Session session(*model.graph, {.devices = devices, .cores_per_device = 1, .placement = method});
  session.Initialize();
  const auto step = [&] {
    session.Run(model.feeds, std::span(&model.loss, 1), std::span(&model.train, 1));
  };
  step();
  const double first_predicted = session.Explain().predicted_seconds;
  for (int i = 0; i < 12; ++i) step();  // past those that are measured, and a second placement
  const double predicted = session.Explain().predicted_seconds;
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  for (int64_t before = NowNanos(); before < end || times.size() < 5;) {
    step();
    const int64_t after = NowNanos();
    times.push_back(double(after - before) * 1e-9);
    before = after;
  }
  return {first_predicted, predicted, Median(times), *std::min_element(times.begin(), times.end())};
}

void BenchPlacing(const BenchOptions& options) {
  constexpr int64_t kNodes = 100'000;
  constexpr int kDevices = 64;
  Program program;
  Graph& graph = *program.graph;
  graph.Reserve(kNodes);
  const Output x = Placeholder(graph, kFloat32, {64, 64}, "x");
  program.feeds = {x};
  std::mt19937 random(7);
  std::vector<Output> values = {x};
  while (graph.size() < kNodes) {
    const auto any = [&] {
      return values[values.size() - 1 - random() % std::min<size_t>(values.size(), 2000)];
    };
    values.push_back(random() % 2 == 0 ? MatMul(any(), any()) : Add(any(), any()));
  }
  for (size_t i = values.size() - 100; i < values.size(); ++i) program.fetches.push_back(values[i]);
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < kDevices; ++i) {
    devices.push_back({.name = fmt::format("/job:worker/task:{}/cpu:0", i), .type = "cpu"});
  }
  const placement::Machines machines = placement::MakeMachines(devices, CalibratedSpeed());
  for (const placement::Method method : {placement::Method::kGreedy, placement::Method::kSearch}) {
    placement::StateHomes homes;
    const int64_t start = NowNanos();
    const auto placed = placement::PlaceProgram(program, machines, homes, {.method = method});
    ThrowIfError(placed.status());
    Report({"placement",
            fmt::format("{} nodes on {} devices, {}", kNodes, kDevices, placement::NameOf(method)),
            double(NowNanos() - start) * 1e-9, "s"},
           options.json);
  }
}

}  // namespace

void BenchPlacement(const BenchOptions& options) {
  const int64_t start = NowNanos();
  ThrowIfError(MeasureMachine().status());
  Report({"placement", "measuring the machine", double(NowNanos() - start) * 1e-6, "ms"},
         options.json);
  for (const std::string_view name : PlacementModelNames()) {
    if (!options.model.empty() && options.model != name) continue;
    double one = 0;
    for (int devices = 1; devices <= 2; ++devices) {
      const Times times = MeasureModel(name, devices, "search", options.seconds);
      const std::string what =
          fmt::format("{}, {} device{}", name, devices, devices == 1 ? "" : "s");
      Report({"placement", what + ", predicted before the second placement",
              times.first_predicted * 1e3, "ms"},
             options.json);
      Report({"placement", what + ", predicted", times.predicted * 1e3, "ms"}, options.json);
      Report({"placement", what + ", measured", times.measured * 1e3, "ms"}, options.json);
      Report({"placement", what + ", fastest", times.fastest * 1e3, "ms"}, options.json);
      if (devices == 1) one = times.measured;
      if (devices == 2) {
        Report({"placement", fmt::format("{}, times as fast on 2 devices", name),
                one / times.measured, "times"},
               options.json);
      }
    }
  }
  if (options.model.empty()) BenchPlacing(options);
}

}  // namespace tutti::tools
