#include "tools/tutti/plot/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tutti/base/status.h"
#include "tutti/base/text_file.h"

namespace tutti::tools {
namespace {

// Shown only when they are asked for.
bool IsSpeed(std::string_view metric) {
  return metric.ends_with("_per_second") || metric == "step_milliseconds";
}

absl::StatusOr<std::string> ReadLog(const std::string& given) {
  const bool folder = std::filesystem::is_directory(given);
  const std::string path = folder ? given + "/metrics.jsonl" : given;
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return NotFound("cannot open {}: {}; a training writes it into its --model-dir", path,
                    std::strerror(errno));
  }
  std::ostringstream text;
  text << in.rdbuf();
  // What an evaluator found has a file of its own.
  std::ifstream evaluations(folder ? given + "/eval/metrics.jsonl" : "", std::ios::binary);
  if (evaluations && evaluations.peek() != std::ifstream::traits_type::eof()) {
    std::string all = text.str();
    all.resize(all.rfind('\n') + 1);  // a line that is being written
    text.str("");
    text << all << evaluations.rdbuf();
  }
  return text.str();
}

void AddLine(const nlohmann::json& line, std::map<std::string, Curve>& curves) {
  const double step = line.at("step").get<double>();
  const auto kind = line.at("kind").get<std::string>();
  for (const auto& [key, value] : line.items()) {
    if (key == "step" || key == "kind" || key == "time" || !value.is_number()) continue;
    const std::string metric = kind == "train" && key.starts_with("train_") ? key.substr(6) : key;
    Curve& curve = curves[metric];
    curve.metric = metric;
    auto series = std::find_if(curve.series.begin(), curve.series.end(),
                               [&](const Series& known) { return known.kind == kind; });
    if (series == curve.series.end()) {
      curve.series.push_back({kind});
      series = curve.series.end() - 1;
    }
    series->points.emplace_back(step, value.get<double>());
  }
}

std::string NamesOf(const std::vector<Curve>& curves) {
  std::string names;
  for (const Curve& curve : curves) names += (names.empty() ? "" : ", ") + curve.metric;
  return names;
}

absl::StatusOr<std::vector<Curve>> Chosen(const std::vector<Curve>& all,
                                          const std::vector<std::string>& names) {
  std::vector<Curve> chosen;
  if (names.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [](const Curve& curve) { return !IsSpeed(curve.metric); });
    return chosen;
  }
  for (const std::string& name : names) {
    const auto curve = std::find_if(all.begin(), all.end(),
                                    [&](const Curve& known) { return known.metric == name; });
    if (curve == all.end()) {
      return InvalidArgument("there is no metric \"{}\"; there are {}", name, NamesOf(all));
    }
    chosen.push_back(*curve);
  }
  return chosen;
}

}  // namespace

absl::StatusOr<std::vector<Curve>> ParseCurves(std::string_view text) {
  std::map<std::string, Curve> curves;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // a line that is being written
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    const bool fits = parsed.is_object() && parsed.contains("step") && parsed.contains("kind") &&
                      parsed["step"].is_number() && parsed["kind"].is_string();
    if (!fits) {
      return InvalidArgument("line {} of metrics.jsonl is no JSON object with a step and a kind",
                             number);
    }
    AddLine(parsed, curves);
  }
  std::vector<Curve> sorted;
  if (const auto loss = curves.find("loss"); loss != curves.end()) sorted.push_back(loss->second);
  for (const auto& [name, curve] : curves) {
    if (name != "loss") sorted.push_back(curve);
  }
  return sorted;
}

Axis AxisFor(double low, double high, int marks) {
  if (!(high > low)) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room, high += room;
  }
  const double rough = (high - low) / std::max(marks, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

std::string ShortNumber(double value) {
  if (std::abs(value) >= 1e6 || (value != 0 && std::abs(value) < 1e-4)) {
    return fmt::format("{:.3g}", value);
  }
  const std::string text = fmt::format("{:.6g}", value);
  return text == "-0" ? "0" : text;
}

absl::StatusOr<std::string> Plot(const PlotOptions& options, const ChartStyle& style) {
  TUTTI_ASSIGN_OR_RETURN(const std::string text, ReadLog(options.directory));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Curve> all, ParseCurves(text));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Curve> curves, Chosen(all, options.metrics));
  if (curves.empty()) {
    return FailedPrecondition(
        "{} has nothing to draw yet; a training writes to it every --summary-every steps",
        options.directory);
  }
  std::string drawn;
  ChartStyle sized = style;
  sized.height = options.height;
  for (const Curve& curve : curves) {
    drawn += (drawn.empty() ? "" : "\n") + DrawChart(curve, sized);
  }
  if (!options.svg.empty()) {
    TUTTI_RETURN_IF_ERROR(WriteTextFile(options.svg, DrawSvg(curves)));
    drawn += fmt::format("\nwrote {}\n", options.svg);
  }
  return drawn;
}

}  // namespace tutti::tools
