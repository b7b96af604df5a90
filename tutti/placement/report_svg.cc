// The timeline of a step: one lane a device from top to bottom, time from left to right.
//
//   cpu:0   [matmul][relu][matmul]......[loss]     boxes by kind of work; wide ones have names
//                     \                /           a line for each transfer, from lane to lane
//   cpu:1             [conv          ]             the critical path has a dark frame
//           0        1 ms        2 ms
//
// The colours are those of Okabe and Ito, which people with any colour vision can tell apart. Of a
// step with very many nodes those that would be narrower than half a pixel are left out; a line
// says how many.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tutti/placement/report.h"
#include "tutti/topology/quantity.h"

namespace tutti {
namespace {

constexpr double kLeft = 190, kWidth = 1000, kTop = 92, kLane = 54, kBox = 30;
constexpr size_t kMostTransfers = 400;

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

struct Colour {
  const char* fill;
  const char* what;
};

// By what the op is, roughly: the legend has the words.
Colour ColourOf(std::string_view op) {
  const auto has = [&](std::string_view part) { return op.find(part) != std::string_view::npos; };
  if (has("MatMul") || has("Conv") || has("Solve")) return {"#0072B2", "matrix and convolution"};
  if (op.starts_with("Apply") || op.starts_with("Assign") || has("Scatter")) {
    return {"#D55E00", "updates"};
  }
  if (has("Gather") || has("Concat") || has("Transpose") || has("Slice") || has("Split")) {
    return {"#E69F00", "moving bytes"};
  }
  if (has("Softmax") || has("Norm") || has("Pool") || op == "Sum" || op == "Mean" ||
      has("BiasAddGrad") || has("SumToShape")) {
    return {"#009E73", "reductions"};
  }
  return {"#56B4E9", "element by element, and other"};
}

// 1, 2 or 5 times a power of ten, at least `least`.
double RoundStep(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

std::string Text(double x, double y, std::string_view text, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, Escaped(text));
}

}  // namespace

std::string PlacementReport::ToSvg() const {
  double last = 0;
  for (const NodeLine& node : nodes) last = std::max(last, node.end);
  if (last <= 0) last = 1e-6;
  const double scale = kWidth / last;
  // Devices without work would only push the others apart.
  std::map<std::string, double> lanes;
  std::vector<const DeviceLine*> shown;
  for (const DeviceLine& device : devices) {
    if (device.busy <= 0 && devices.size() > 8) continue;
    lanes[device.name] = kTop + kLane * double(shown.size());
    shown.push_back(&device);
  }
  const double bottom = kTop + kLane * double(shown.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\" "
      "fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
      "markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#888\"/></marker>"
      "</defs>\n",
      kLeft + kWidth + 40, bottom + 70);
  std::string title =
      fmt::format("One step: {} predicted", topology::FormatSeconds(predicted_seconds));
  if (measured_seconds >= 0) {
    title += fmt::format(", {} measured", topology::FormatSeconds(measured_seconds));
  }
  svg += Text(20, 28, title, "font-size=\"18\" font-weight=\"bold\"");
  svg += Text(20, 48, fmt::format("placement {}: {}", method, how), "fill=\"#555\"");

  const double step = RoundStep(last / 8);
  for (double t = 0; t <= last * 1.0001; t += step) {
    const double x = kLeft + t * scale;
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#e4e4e4\"/>\n",
        x, kTop - 12, bottom);
    svg += Text(x, bottom + 16, t == 0 ? "0" : topology::FormatSeconds(t),
                "text-anchor=\"middle\" fill=\"#555\"");
  }
  for (const DeviceLine* device : shown) {
    const double y = lanes[device->name];
    const size_t tail = device->name.rfind('/');
    svg += Text(20, y + 14, device->name.substr(tail == std::string::npos ? 0 : tail + 1),
                "font-weight=\"bold\"");
    svg += Text(20, y + 29,
                fmt::format("{} busy {:.0f}%", device->name.substr(0, tail),
                            100 * device->busy / std::max(predicted_seconds, 1e-12)),
                "fill=\"#555\" font-size=\"10\"");
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f6f6f6\"/>\n",
        kLeft, y, kWidth, kBox);
  }
  std::map<std::string, const char*> legend;
  int left_out = 0;
  for (const bool critical : {false, true}) {  // frames on top
    for (const NodeLine& node : nodes) {
      if (node.critical != critical || node.end <= node.start) continue;
      const double width = (node.end - node.start) * scale;
      const auto lane = lanes.find(node.device);
      if (width < 0.5 || lane == lanes.end()) {
        ++left_out;
        continue;
      }
      const Colour colour = ColourOf(node.op);
      legend[colour.what] = colour.fill;
      const double x = kLeft + node.start * scale;
      svg += fmt::format(
          "<g><title>{} \"{}\"\n{} from {}\n{}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" "
          "width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>",
          Escaped(node.op), Escaped(node.name), topology::FormatSeconds(node.end - node.start),
          topology::FormatSeconds(node.start), Escaped(node.why), x, lane->second, width, kBox,
          colour.fill, critical ? "#000" : "#fff", critical ? 1.5 : 0.5);
      const auto room = size_t(std::max(0.0, (width - 6) / 6.2));
      if (room >= 4) {
        const std::string name =
            node.name.size() <= room ? node.name : node.name.substr(0, room - 1) + "\u2026";
        svg += Text(x + 3, lane->second + 19, name, "fill=\"#fff\" font-size=\"10\"");
      }
      svg += "</g>\n";
    }
  }
  for (size_t i = 0; i < transfers.size() && i < kMostTransfers; ++i) {
    const TransferLine& transfer = transfers[i];
    const auto from = lanes.find(transfer.source), to = lanes.find(transfer.destination);
    if (from == lanes.end() || to == lanes.end()) continue;
    const bool down = from->second < to->second;
    svg += fmt::format(
        "<path d=\"M{:.1f} {:.1f} L{:.1f} {:.1f}\" stroke=\"#888\" fill=\"none\" "
        "marker-end=\"url(#arrow)\"><title>{}, {}</title></path>\n",
        kLeft + transfer.start * scale, from->second + (down ? kBox : 0),
        kLeft + transfer.end * scale, to->second + (down ? 0 : kBox), Escaped(transfer.value),
        topology::FormatBytes(transfer.bytes));
  }
  double x = kLeft;
  const double y = bottom + 42;
  for (const auto& [what, fill] : legend) {
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                       x, y - 10, fill);
    svg += Text(x + 17, y, what);
    x += 40 + 6.4 * double(what.size());
  }
  svg += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"none\" stroke=\"#000\" "
      "stroke-width=\"1.5\"/>\n",
      x, y - 10);
  svg += Text(x + 17, y, "critical path");
  if (left_out > 0) {
    svg += Text(kLeft, y + 20, fmt::format("{} nodes are too short to be drawn", left_out),
                "fill=\"#555\" font-size=\"10\"");
  }
  return svg + "</svg>\n";
}

}  // namespace tutti
