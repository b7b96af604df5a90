#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The placement of a step and the reasons for it: the result of Session::Explain. A plain value.
// Times are in seconds; a negative one was not measured.
struct PlacementReport {
  struct Candidate {
    std::string device;
    double finish = 0;  // when the node would have ended there; negative: it does not fit
  };
  struct NodeLine {
    std::string name, op, device;
    std::string why;                    // what decided
    double start = 0, end = 0;          // predicted
    double measured = -1;               // how long it took
    bool critical = false;              // the end of the step waits for it
    std::vector<Candidate> candidates;  // what was compared; empty where there was no choice
  };
  struct DeviceLine {
    std::string name;
    int cores = 1;
    double busy = 0;  // predicted seconds of work
    double measured_busy = -1;
    double peak_bytes = 0;   // predicted: variables, and values alive at once
    double limit_bytes = 0;  // 0: none
  };
  struct TransferLine {
    std::string value, source, destination;
    double start = 0, end = 0;
    double bytes = 0;
  };
  struct LinkLine {
    std::string a, b;  // tasks
    double latency = 0, bytes_per_second = 0;
    bool measured = false;  // else assumed, or given by a description of the cluster
  };
  std::string method;  // "search"
  std::string how;     // "greedy, heavy nodes first, then search: 3 of 120 moves kept"
  double predicted_seconds = 0;
  double measured_seconds = -1;
  std::vector<NodeLine> nodes;  // in the order of the program; without constants
  std::vector<DeviceLine> devices;
  std::vector<TransferLine> transfers;
  std::vector<LinkLine> links;             // between tasks; of more than 8, those that values cross
  std::vector<std::string> critical_path;  // names of nodes, the first one first

  // Fills in what a run took: seconds of nodes by name (none if only the whole was
  // timed), and of the whole step.
  void SetMeasured(const std::map<std::string, double>& nodes_by_name, double step_seconds);

  // One line: the predicted and the measured step, and how busy each device is.
  std::string Summary() const;
  // Text for users: the whole, the devices, the critical path, then up to `most_nodes` nodes, those
  // that take longest first.
  std::string ToText(int most_nodes = 40) const;
  // One JSON object with all of it, and back. FromJson throws Error.
  std::string ToJson() const;
  static PlacementReport FromJson(std::string_view text);
  // A timeline: a lane for each device, boxes for nodes, arrows for transfers, the critical path
  // marked.
  std::string ToSvg() const;
};

}  // namespace tutti
