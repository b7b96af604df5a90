// Latency and bandwidth are computed from differences between the times of two steps, so that the
// costs that both steps have in common (request, answer, nodes) cancel out:
//
//   latency      9 crossings of 16 bytes  -  1 crossing          divided by 8
//   bandwidth    2 crossings of 1 MB  -  the same nodes on one task, without the latencies
// The large value is the product of a column and a row, so only a few KB are fed.
#include "tutti/runtime/measure/link_probe.h"

#include <algorithm>
#include <functional>
#include <set>

#include "tutti/base/log.h"
#include "tutti/runtime/measure/timed_graph.h"

namespace tutti {
namespace {

constexpr int kFew = 1, kMany = 9;  // crossings
constexpr int64_t kSide = 512;
constexpr double kLargeBytes = double(kSide) * kSide * sizeof(float);

struct Probe {
  const WorkersByTask& workers;
  const std::string& home;

  // A small value that crosses so often.
  absl::StatusOr<double> Crossings(const std::string& a, const std::string& b, int count) const {
    TimedGraph graph(workers, home, {a, b});
    TUTTI_ASSIGN_OR_RETURN(Output value, graph.Feed({4}));
    for (int i = 0; i <= count; ++i) {
      TUTTI_ASSIGN_OR_RETURN(const Node* node, graph.Add("Neg", {value}, {}, i % 2));
      value = node->output();
    }
    TUTTI_RETURN_IF_ERROR(graph.Run());
    return graph.step();
  }

  // A large value that is made on a, read on b, and whose negative is read on a.
  absl::StatusOr<double> LargeRound(const std::string& a, const std::string& b) const {
    TimedGraph graph(workers, home, {a, b});
    TUTTI_ASSIGN_OR_RETURN(const Output column, graph.Feed({kSide, 1}));
    TUTTI_ASSIGN_OR_RETURN(const Output row, graph.Feed({1, kSide}));
    TUTTI_ASSIGN_OR_RETURN(const Node* made, graph.Add("MatMul", {column, row}, {}, 0));
    TUTTI_ASSIGN_OR_RETURN(const Node* there, graph.Add("Neg", {made->output()}, {}, 1));
    TUTTI_ASSIGN_OR_RETURN(const Node* back, graph.Add("Neg", {there->output()}, {}, 0));
    (void)back;
    TUTTI_RETURN_IF_ERROR(graph.Run());
    return graph.step();
  }

  absl::StatusOr<topology::Link> Between(const std::string& a, const std::string& b) const {
    TUTTI_ASSIGN_OR_RETURN(const double few, Crossings(a, b, kFew));
    TUTTI_ASSIGN_OR_RETURN(const double many, Crossings(a, b, kMany));
    TUTTI_ASSIGN_OR_RETURN(const double apart, LargeRound(a, b));
    TUTTI_ASSIGN_OR_RETURN(const double together, LargeRound(a, a));
    topology::Link link;
    link.latency = std::max(1e-7, (many - few) / (kMany - kFew));
    const double carried = (apart - together) / 2 - link.latency;
    link.bytes_per_second = kLargeBytes / std::max(1e-6, carried);
    return link;
  }
};

std::string TaskOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

std::pair<std::string, std::string> Key(const std::string& a, const std::string& b) {
  return std::minmax(a, b);
}

}  // namespace

void ProbeTaskLinks(const WorkersByTask& workers, const std::string& home,
                    const std::vector<DeviceInfo>& devices, TaskLinks& links) {
  std::vector<std::string> tasks, first;  // first: device of each
  for (const DeviceInfo& device : devices) {
    const std::string task = TaskOf(device.name);
    if (std::find(tasks.begin(), tasks.end(), task) != tasks.end()) continue;
    tasks.push_back(task);
    first.push_back(device.name);
  }
  const Probe probe{workers, home};
  const size_t starts = tasks.size() <= kMostPairedTasks ? tasks.size() : 1;
  for (size_t a = 0; a < starts; ++a) {
    for (size_t b = a + 1; b < tasks.size(); ++b) {
      if (links.contains(Key(tasks[a], tasks[b]))) continue;
      const absl::StatusOr<topology::Link> link = probe.Between(first[a], first[b]);
      if (link.ok()) {
        links.emplace(Key(tasks[a], tasks[b]), *link);
      } else {
        Log(LogLevel::kWarning,
            "placement: the link between {} and {} could not be measured, a typical one is "
            "assumed: {}",
            tasks[a], tasks[b], MessageOf(link.status()));
      }
    }
  }
  for (size_t a = 1; starts == 1 && a < tasks.size(); ++a) {
    for (size_t b = a + 1; b < tasks.size(); ++b) {
      const auto one = links.find(Key(tasks[0], tasks[a]));
      const auto other = links.find(Key(tasks[0], tasks[b]));
      if (one == links.end() || other == links.end()) continue;
      links.try_emplace(
          Key(tasks[a], tasks[b]),
          topology::Link{.bytes_per_second =
                             std::min(one->second.bytes_per_second, other->second.bytes_per_second),
                         .latency = std::max(one->second.latency, other->second.latency)});
    }
  }
}

void UseLinks(const TaskLinks& links, placement::Machines& machines) {
  for (int a = 0; a < machines.size(); ++a) {
    for (int b = 0; b < machines.size(); ++b) {
      if (machines.task[size_t(a)] == machines.task[size_t(b)]) continue;
      const auto link = links.find(
          Key(TaskOf(machines.devices[size_t(a)].name), TaskOf(machines.devices[size_t(b)].name)));
      if (link != links.end()) machines.SetLink(a, b, link->second);
    }
  }
}

}  // namespace tutti
