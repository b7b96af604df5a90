// What a stale gradient does: two workers go down one valley, f(x, y) = x^2 / 2 + 8 y^2, whose two
// coordinates live on a parameter server. In step, and then on their own:
//
//   build/bin/tutti run --workers 2 --ps 1 -- build/bin/stale_gradient
//       --strategy ps-sync --path sync.txt
//   build/bin/tutti run --workers 2 --ps 1 -- build/bin/stale_gradient
//       --strategy ps-async --path async.txt --beside sync.txt --svg paths.svg
//
// Each run prints how far it ended from the minimum and how often it crossed the floor of the
// valley, and the second one draws both paths. In step, both gradients of an update are computed at
// one point, and y falls without a crossing. On its own, a worker applies a gradient that it
// computed before the other's update. Plain descent would stand twice the learning rate; the stale
// gradients push past the floor, and the path swings from side to side.
//
// Nothing is simulated. Each worker notes at which point it computed the gradient of every update;
// that gradient times the learning rate is the move, so the notes of both workers, in the order of
// updates, are the path. The last point is compared with the variable on the server.
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace tutti;

namespace {

constexpr double kStartX = 9, kStartY = 3, kSteepX = 1, kSteepY = 16;

struct Point {
  double x = 0, y = 0;
};

// The valley, and a product between the read of the place and its gradient that stands for a model:
// while it is computed, the other worker makes its update. It adds 0.
ModelSpec Valley(const Features& batch, Mode /*mode*/, const RunConfig& config) {
  Graph& graph = batch["none"].graph();
  const Output place = nn::GetVariable(
      graph, Value(Tensor::Of<float>({2}, {float(kStartX), float(kStartY)})), "place");
  const Output steepness =
      Constant(graph, Tensor::Of<float>({2}, {float(kSteepX), float(kSteepY)}));
  const Output work =
      Add(Constant(graph, Tensor::Zeros(kFloat32, {600, 600})), Sum(Mul(place, 0.0f)));
  ModelSpec spec;
  spec.loss = Add(Mul(Sum(Mul(Mul(place, place), steepness)), 0.5f), Sum(MatMul(work, work)));
  spec.metrics["x"] = Sum(Mul(place, Constant(graph, Tensor::Of<float>({2}, {1, 0}))));
  spec.metrics["y"] = Sum(Mul(place, Constant(graph, Tensor::Of<float>({2}, {0, 1}))));
  spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = config.learning_rate});
  return spec;
}

// The path from the notes "update x y" of all workers. In step, both have a note for each update,
// of one and the same point.
std::vector<Point> PathFrom(const std::vector<std::string>& notes, double rate) {
  std::map<int64_t, Point> computed_at;
  for (const std::string& text : notes) {
    std::istringstream lines(text);
    int64_t update = 0;
    for (Point p; lines >> update >> p.x >> p.y;) computed_at[update] = p;
  }
  std::vector<Point> path = {{kStartX, kStartY}};
  for (const auto& [update, at] : computed_at) {
    const Point last = path.back();
    path.push_back({last.x - rate * kSteepX * at.x, last.y - rate * kSteepY * at.y});
  }
  return path;
}

// A swing of less than a thousandth of the start is no crossing: it cannot be seen.
int Crossings(const std::vector<Point>& path) {
  int crossings = 0;
  double side = kStartY;
  for (const Point& p : path) {
    if (std::abs(p.y) < kStartY / 1000) continue;
    crossings += p.y * side < 0 ? 1 : 0;
    side = p.y;
  }
  return crossings;
}

std::string Line(const std::vector<Point>& path, const char* color) {
  std::string points, dots;
  char text[160];
  for (const Point& p : path) {
    const double x = 60 + 60 * p.x, y = 220 - 50 * p.y;
    std::snprintf(text, sizeof(text), "%.1f,%.1f ", x, y);
    points += text;
    std::snprintf(text, sizeof(text), "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x,
                  y, color);
    dots += text;
  }
  return "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" + std::string(color) +
         "\" points=\"" + points + "\"/>\n" + dots;
}

std::string Label(int x, int y, const char* color, const std::string& text) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" fill=\"" + color +
         "\">" + text + "</text>\n";
}

// `first` may be empty.
std::string Picture(const std::vector<Point>& first, const std::vector<Point>& second,
                    const std::string& name) {
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"680\" height=\"440\" "
      "font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"680\" height=\"440\" "
      "fill=\"white\"/>\n";
  for (const double height : {1.0, 4.0, 16.0, 36.0, 72.0, 112.0}) {
    char ring[160];
    std::snprintf(ring, sizeof(ring),
                  "<ellipse cx=\"60\" cy=\"220\" rx=\"%.1f\" ry=\"%.1f\" fill=\"none\" "
                  "stroke=\"#ddd\"/>\n",
                  60 * std::sqrt(2 * height), 50 * std::sqrt(height / 8));
    svg += ring;
  }
  svg +=
      "<line x1=\"0\" y1=\"220\" x2=\"680\" y2=\"220\" stroke=\"#bbb\" stroke-dasharray=\"4\"/>\n";
  svg += Line(second, "#c33") + Line(first, "#27a");
  svg += Label(620, 62, "#333", "start") + Label(20, 240, "#333", "minimum");
  if (!first.empty()) svg += Label(330, 30, "#27a", "in step: gradients of the same point");
  svg += Label(330, 410, "#c33",
               name + ": " + std::to_string(Crossings(second)) + " crossings of the floor");
  return svg + "</svg>\n";
}

void WritePath(const std::string& file, const std::vector<Point>& path) {
  std::ofstream out(file);
  for (const Point& p : path) out << p.x << ' ' << p.y << '\n';
  if (!out.flush()) throw Error(Code::kUnavailable, file + " cannot be written");
}

std::vector<Point> ReadPath(const std::string& file) {
  std::ifstream in(file);
  std::vector<Point> path;
  for (Point p; in >> p.x >> p.y;) path.push_back(p);
  if (path.empty()) throw Error(Code::kNotFound, file + " has no path; --path writes one");
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path_file, beside, svg;
  Flags flags("");
  flags.Add("path", &path_file, "FILE for the points of the path");
  flags.Add("beside", &beside, "FILE of a path in step, for the picture");
  flags.Add("svg", &svg, "FILE for a picture");
  const MainOptions options = {
      .summary = "Shows how a stale gradient overshoots a minimum.",
      .defaults = {.max_steps = 40, .batch_size = 1, .learning_rate = 0.05},
      .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& given) {
    RunConfig config = given;
    config.show = "metrics";
    std::ostringstream notes;
    notes.precision(9);
    const auto note = AfterSteps(1, [&](const StepEnd& end, TrainingControl&) {
      notes << end.step << ' ' << end.values.at("train_x") << ' ' << end.values.at("train_y")
            << '\n';
    });
    Estimator estimator([&](const Features& b, Mode mode) { return Valley(b, mode, config); },
                        config);
    const Dataset none = Dataset::FromTensors({{"none", Tensor::Zeros(kFloat32, {16})}});
    estimator.Train({.input = [&] { return none.Repeat(); }, .hooks = {note}});
    const std::vector<Point> path = PathFrom(
        config.strategy_object->peers().Gather("notes", notes.str()), config.learning_rate);
    const Tensor place = estimator.Variables().at("place");
    if (!config.leads()) return;
    const Point end = path.back();
    if (std::hypot(end.x - place.data<float>()[0], end.y - place.data<float>()[1]) > 1e-3) {
      throw Error(Code::kInternal, "the notes of the workers do not lead to the variable's value");
    }
    std::printf("%s: after %zu updates %.4f from the minimum, crosses the floor %d times\n",
                config.strategy.c_str(), path.size() - 1, std::hypot(end.x, end.y),
                Crossings(path));
    if (!path_file.empty()) WritePath(path_file, path);
    if (svg.empty()) return;
    std::ofstream file(svg);
    file << Picture(beside.empty() ? std::vector<Point>() : ReadPath(beside), path,
                    config.strategy);
    if (!file.flush()) throw Error(Code::kUnavailable, svg + " cannot be written");
  });
}
