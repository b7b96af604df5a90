// What a stale gradient does: two workers go down the same valley, f(x, y) = x^2 / 2 + 8 y^2,
// once in step and once on their own, and a picture shows both paths.
//
//   build/bin/stale_gradient --svg paths.svg
//
// prints how far each ended from the minimum and how often it crossed the valley's floor. In step
// (ps-sync), an update is made from gradients at one and the same point, and y falls without a
// crossing. On their own (ps-async), each worker's gradient was computed at the point before the
// other's update. The learning rate of 0.05 is less than half of what plain descent can stand, but
// the stale step overshoots, and the path swings from side to side.
//
// The two workers take turns here, so that the picture is the same every time: worker 1 applies the
// gradient that it computed one update ago. That is what two workers of equal speed do.
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace tutti;

namespace {

struct Point {
  double x = 0, y = 0;
};

// The path of `updates` updates, whose gradients are `staleness` updates old.
std::vector<Point> Descend(int updates, int staleness, double rate) {
  Graph graph;
  const Output place = Variable(graph, Value(Tensor::Of<double>({2}, {9.0, 3.0})), "place");
  const Output scale = Constant(graph, Tensor::Of<double>({2}, {1.0, 16.0}));
  const Output gradient = Mul(place, scale);
  const Output pushed = Placeholder(graph, kFloat64, {2}, "pushed");
  const Output moved = AssignSub(place, Mul(pushed, rate));
  Session session(graph, {.cores_per_device = 1});
  session.Initialize();
  std::vector<Tensor> computed;
  std::vector<Point> path = {{9.0, 3.0}};
  for (int i = 0; i < updates; ++i) {
    computed.push_back(session.Run(gradient));
    const Tensor& old = computed[size_t(std::max(0, i - staleness))];
    const Tensor now = session.Run({{pushed, old}}, moved);
    path.push_back({now.data<double>()[0], now.data<double>()[1]});
  }
  return path;
}

int Crossings(const std::vector<Point>& path) {
  int crossings = 0;
  for (size_t i = 1; i < path.size(); ++i) crossings += path[i].y * path[i - 1].y < 0 ? 1 : 0;
  return crossings;
}

std::string Line(const std::vector<Point>& path, const char* color) {
  std::string points, dots;
  char text[160];
  for (const Point& p : path) {
    const double x = 40 + 60 * p.x, y = 200 - 50 * p.y;
    std::snprintf(text, sizeof(text), "%.1f,%.1f ", x, y);
    points += text;
    std::snprintf(text, sizeof(text), "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", x,
                  y, color);
    dots += text;
  }
  return "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"" + std::string(color) +
         "\" points=\"" + points + "\"/>\n" + dots;
}

std::string Picture(const std::vector<Point>& in_step, const std::vector<Point>& alone) {
  std::string svg =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"400\" "
      "font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"640\" height=\"400\" "
      "fill=\"white\"/>\n";
  for (const double height : {1.0, 4.0, 16.0, 36.0, 72.0}) {
    char ring[160];
    std::snprintf(ring, sizeof(ring),
                  "<ellipse cx=\"40\" cy=\"200\" rx=\"%.1f\" ry=\"%.1f\" fill=\"none\" "
                  "stroke=\"#ddd\"/>\n",
                  60 * std::sqrt(2 * height), 50 * std::sqrt(height / 8));
    svg += ring;
  }
  svg += Line(alone, "#c33") + Line(in_step, "#27a");
  svg +=
      "<text x=\"330\" y=\"30\" fill=\"#27a\">ps-sync: gradients of the same point</text>\n"
      "<text x=\"330\" y=\"50\" fill=\"#c33\">ps-async: one update old</text>\n</svg>\n";
  return svg;
}

}  // namespace

int main(int argc, char** argv) {
  std::string svg;
  int64_t updates = 30;
  double rate = 0.05;
  Flags flags("Shows how a stale gradient overshoots a minimum.");
  flags.Add("svg", &svg, "FILE for a picture of both paths");
  flags.Add("updates", &updates, "to make", 1);
  flags.Add("learning-rate", &rate, "of plain descent", 0.0);
  try {
    if (!flags.Parse(argc, argv)) return 0;
    const std::vector<Point> in_step = Descend(int(updates), 0, rate);
    const std::vector<Point> alone = Descend(int(updates), 1, rate);
    for (const auto& [name, path] : {std::pair("ps-sync ", in_step), {"ps-async", alone}}) {
      std::printf("%s  ends %.4f from the minimum, crosses the floor %d times\n", name,
                  std::hypot(path.back().x, path.back().y), Crossings(path));
    }
    if (!svg.empty()) {
      std::ofstream file(svg);
      file << Picture(in_step, alone);
      if (!file.flush()) throw Error(Code::kUnavailable, svg + " cannot be written");
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "stale_gradient: %s\n", error.what());
    return 1;
  }
  return 0;
}
