#include "tutti/placement/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/topology/quantity.h"

namespace tutti {
namespace {

using nlohmann::json;
using topology::FormatBytes;
using topology::FormatSeconds;

std::string Measured(double seconds) { return seconds < 0 ? "-" : FormatSeconds(seconds); }

std::string Percent(double part, double whole) {
  return fmt::format("{:.0f}%", whole > 0 ? 100 * part / whole : 0);
}

json OptionalSeconds(double seconds) { return seconds < 0 ? json() : json(seconds); }

double SecondsOr(const json& value) { return value.is_number() ? value.get<double>() : -1; }

}  // namespace

void PlacementReport::SetMeasured(const std::map<std::string, double>& nodes_by_name,
                                  double step_seconds) {
  measured_seconds = step_seconds;
  if (nodes_by_name.empty()) return;  // of nodes nothing is known
  std::map<std::string, double> busy;
  for (NodeLine& line : nodes) {
    const auto it = nodes_by_name.find(line.name);
    line.measured = it == nodes_by_name.end() ? -1 : it->second;
    if (line.measured > 0) busy[line.device] += line.measured;
  }
  for (DeviceLine& device : devices) device.measured_busy = busy[device.name];
}

std::string PlacementReport::Summary() const {
  std::string text = fmt::format("placement {}: a step is predicted to take {}", method,
                                 FormatSeconds(predicted_seconds));
  if (measured_seconds >= 0) {
    text += fmt::format(" and was measured at {}", FormatSeconds(measured_seconds));
  }
  // Of one task, the devices are told apart by their last part.
  const auto task = [](const DeviceLine& device) {
    return device.name.substr(0, device.name.rfind('/') + 1);
  };
  const bool one_task = std::all_of(devices.begin(), devices.end(), [&](const DeviceLine& device) {
    return task(device) == task(devices.front());
  });
  for (const DeviceLine& device : devices) {
    text += fmt::format("{} {} busy {}", &device == &devices.front() ? ";" : ",",
                        one_task ? device.name.substr(device.name.rfind('/') + 1) : device.name,
                        Percent(device.busy, predicted_seconds));
  }
  return text;
}

std::string PlacementReport::ToText(int most_nodes) const {
  std::string text = fmt::format("placement {}: {}\npredicted step {}", method, how,
                                 FormatSeconds(predicted_seconds));
  if (measured_seconds >= 0) {
    text += fmt::format(", measured {} (predicted {:+.0f}%)", FormatSeconds(measured_seconds),
                        100 * (predicted_seconds / measured_seconds - 1));
  }
  text += "\n\ndevice                             cores  busy   memory\n";
  for (const DeviceLine& device : devices) {
    text += fmt::format("{:<35}{:>5}  {:>4}   {}", device.name, device.cores,
                        Percent(device.busy, predicted_seconds), FormatBytes(device.peak_bytes));
    if (device.limit_bytes > 0) text += fmt::format(" of {}", FormatBytes(device.limit_bytes));
    if (device.measured_busy >= 0) {
      text += fmt::format(", measured busy {}", Percent(device.measured_busy, measured_seconds));
    }
    text += "\n";
  }
  double bytes = 0;
  for (const TransferLine& transfer : transfers) bytes += transfer.bytes;
  text += fmt::format("\n{} transfers, {}\n", transfers.size(), FormatBytes(bytes));
  for (const LinkLine& link : links) {
    text +=
        fmt::format("{} and {}: {}, {}{}\n", link.a, link.b, FormatSeconds(link.latency),
                    topology::FormatRate(link.bytes_per_second), link.measured ? ", measured" : "");
  }
  text += "\ncritical path:";
  constexpr size_t kMostOnPath = 24;
  for (size_t i = 0; i < critical_path.size(); ++i) {
    if (critical_path.size() > kMostOnPath && i == kMostOnPath / 2) {
      text += fmt::format(" -> ... {} more ...", critical_path.size() - kMostOnPath);
    }
    if (critical_path.size() > kMostOnPath && i >= kMostOnPath / 2 &&
        i + kMostOnPath / 2 < critical_path.size()) {
      continue;
    }
    text += (i == 0 ? " " : " -> ") + critical_path[i];
  }
  text += "\n\n";
  std::vector<const NodeLine*> order;
  for (const NodeLine& line : nodes) order.push_back(&line);
  std::stable_sort(order.begin(), order.end(), [](const NodeLine* a, const NodeLine* b) {
    return a->end - a->start > b->end - b->start;
  });
  text += "predicted  measured   node\n";
  for (size_t i = 0; i < order.size() && i < size_t(std::max(0, most_nodes)); ++i) {
    const NodeLine& line = *order[i];
    text += fmt::format("{:>9}  {:>9}  {}{} \"{}\" on {}: {}\n",
                        FormatSeconds(line.end - line.start), Measured(line.measured),
                        line.critical ? "* " : "  ", line.op, line.name, line.device, line.why);
    if (line.candidates.size() < 2) continue;
    text += "                         would end:";
    for (const Candidate& candidate : line.candidates) {
      text += fmt::format(
          " {} {}", candidate.device,
          candidate.finish < 0 ? "has no room" : "at " + FormatSeconds(candidate.finish));
      text += &candidate == &line.candidates.back() ? "\n" : ",";
    }
  }
  if (order.size() > size_t(std::max(0, most_nodes))) {
    text += fmt::format("and {} more nodes; --json has all\n", order.size() - size_t(most_nodes));
  }
  return text;
}

std::string PlacementReport::ToJson() const {
  json node_list = json::array(), device_list = json::array(), transfer_list = json::array();
  for (const NodeLine& line : nodes) {
    json candidates = json::array();
    for (const Candidate& candidate : line.candidates) {
      candidates.push_back(
          {{"device", candidate.device}, {"finish", OptionalSeconds(candidate.finish)}});
    }
    node_list.push_back({{"name", line.name},
                         {"op", line.op},
                         {"device", line.device},
                         {"why", line.why},
                         {"start", line.start},
                         {"end", line.end},
                         {"measured", OptionalSeconds(line.measured)},
                         {"critical", line.critical},
                         {"candidates", std::move(candidates)}});
  }
  for (const DeviceLine& device : devices) {
    device_list.push_back({{"name", device.name},
                           {"cores", device.cores},
                           {"busy", device.busy},
                           {"measured_busy", OptionalSeconds(device.measured_busy)},
                           {"peak_bytes", device.peak_bytes},
                           {"limit_bytes", device.limit_bytes}});
  }
  for (const TransferLine& transfer : transfers) {
    transfer_list.push_back({{"value", transfer.value},
                             {"source", transfer.source},
                             {"destination", transfer.destination},
                             {"start", transfer.start},
                             {"end", transfer.end},
                             {"bytes", transfer.bytes}});
  }
  json link_list = json::array();
  for (const LinkLine& link : links) {
    link_list.push_back({{"a", link.a},
                         {"b", link.b},
                         {"latency", link.latency},
                         {"bytes_per_second", link.bytes_per_second},
                         {"measured", link.measured}});
  }
  return json{{"method", method},
              {"how", how},
              {"predicted_seconds", predicted_seconds},
              {"measured_seconds", OptionalSeconds(measured_seconds)},
              {"nodes", std::move(node_list)},
              {"devices", std::move(device_list)},
              {"transfers", std::move(transfer_list)},
              {"links", std::move(link_list)},
              {"critical_path", critical_path}}
      .dump();
}

PlacementReport PlacementReport::FromJson(std::string_view text) {
  PlacementReport report;
  try {
    const json from = json::parse(text);
    report.method = from.at("method");
    report.how = from.at("how");
    report.predicted_seconds = from.at("predicted_seconds");
    report.measured_seconds = SecondsOr(from.at("measured_seconds"));
    for (const json& line : from.at("nodes")) {
      NodeLine node;
      node.name = line.at("name");
      node.op = line.at("op");
      node.device = line.at("device");
      node.why = line.at("why");
      node.start = line.at("start");
      node.end = line.at("end");
      node.measured = SecondsOr(line.at("measured"));
      node.critical = line.at("critical");
      for (const json& candidate : line.at("candidates")) {
        node.candidates.push_back({candidate.at("device"), SecondsOr(candidate.at("finish"))});
      }
      report.nodes.push_back(std::move(node));
    }
    for (const json& line : from.at("devices")) {
      report.devices.push_back({.name = line.at("name"),
                                .cores = line.at("cores"),
                                .busy = line.at("busy"),
                                .measured_busy = SecondsOr(line.at("measured_busy")),
                                .peak_bytes = line.at("peak_bytes"),
                                .limit_bytes = line.at("limit_bytes")});
    }
    for (const json& line : from.at("transfers")) {
      report.transfers.push_back({line.at("value"), line.at("source"), line.at("destination"),
                                  line.at("start"), line.at("end"), line.at("bytes")});
    }
    for (const json& line : from.at("links")) {
      report.links.push_back({line.at("a"), line.at("b"), line.at("latency"),
                              line.at("bytes_per_second"), line.at("measured")});
    }
    for (const json& name : from.at("critical_path")) report.critical_path.push_back(name);
  } catch (const json::exception& error) {
    ThrowInvalidArgument(fmt::format("a placement report that cannot be read: {}", error.what()));
  }
  return report;
}

}  // namespace tutti
