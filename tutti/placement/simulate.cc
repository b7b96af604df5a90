// List scheduling by events. There are two: a node becomes ready on its device (its last input has
// arrived), and a device becomes free. A device that is free takes the ready node with the smallest
// number, as a lane takes the lowest bit of its ready set (runtime/executor). When a node ends, its
// values are there at once for nodes of the same device; to every other device that wants one it
// travels once, behind what that link carries already:
//
//   cpu:0  |--a--|--b--|
//   link         ==a==>
//   cpu:1              |--c--|        c reads a, and starts when it has come
//
// Cores of a host are slower together than alone, since they share caches and the memory bus: a
// node takes longer by what its kind was measured to, in proportion to the cores of its host that
// are at work when it starts. Where devices outnumber the cores that they share, all of them take
// turns.
//
// An idle device polls for a while and then sleeps; waking it takes longer than a transfer within a
// process.
//
// Memory is followed on the way: a node's values take their bytes from its start until the last
// node of the device that reads them has ended; a copy that came from elsewhere likewise.
#include "tutti/placement/simulate.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tutti/base/spin.h"

namespace tutti::placement {
namespace {

class Simulator {
 public:
  Simulator(const StepCosts& costs, std::span<const int> device)
      : costs_(costs),
        device_(device),
        count_(costs.size()),
        devices_(size_t(costs.machines->size())),
        waits_(count_),
        arrived_(count_, 0),
        ready_(devices_),
        running_(devices_, false),
        taken_(devices_, kNothing),
        is_touched_(devices_, false),
        busy_cores_(devices_, 0),
        free_since_(devices_, 0),
        live_(devices_, 0),
        readers_(costs.values, 0),
        value_bytes_(count_, 0),
        link_free_(devices_ * devices_, 0) {}

  Simulation Run() {
    result_.start.assign(count_, 0);
    result_.end.assign(count_, 0);
    result_.busy.assign(devices_, 0);
    for (size_t g = 0; g < costs_.groups.size(); ++g) {
      live_[size_t(device_[g])] += costs_.groups[g].state_bytes;
    }
    result_.peak_bytes = live_;
    for (uint32_t n = 0; n < count_; ++n) {
      waits_[n] = uint32_t(costs_.inputs(n).size());
      if (waits_[n] == 0) events_.push({0, n, false});
      for (const StepCosts::Edge& edge : costs_.outputs(n)) {
        if (DeviceOf(edge.node) == DeviceOf(n)) ++readers_[edge.value];
      }
    }
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.ends) {
        End(event.node, event.time);
      } else if (!Sleeps(event)) {
        ready_[size_t(DeviceOf(event.node))].push(event.node);
      }
      Touch(DeviceOf(event.node));
      // What happens at one moment is seen by all devices before one of them starts a node.
      if (events_.empty() || events_.top().time > event.time) StartNodes(event.time);
    }
    return std::move(result_);
  }

 private:
  struct Event {
    double time = 0;
    uint32_t node = 0;
    bool ends = false;  // else: it becomes ready
    bool operator>(const Event& other) const {
      if (time != other.time) return time > other.time;
      if (ends != other.ends) return !ends;  // ends come first
      return node > other.node;
    }
  };

  static constexpr uint32_t kNothing = UINT32_MAX;
  int DeviceOf(uint32_t node) const { return device_[costs_.group[node]]; }
  size_t HostOf(int device) const { return size_t(costs_.machines->host[size_t(device)]); }

  // A device that has waited for longer than it looks for work sleeps: what came becomes ready when
  // it has woken up.
  bool Sleeps(const Event& event) {
    constexpr Patience kPatience;
    constexpr double kAwake = double(kPatience.spin_nanos + kPatience.yield_nanos) * 1e-9;
    const auto d = size_t(DeviceOf(event.node));
    const double wake = costs_.machines->machine.wake_seconds;
    if (wake <= 0 || running_[d] || !ready_[d].empty()) return false;
    if (event.time - free_since_[d] <= kAwake) return false;
    free_since_[d] = event.time + wake;
    events_.push({event.time + wake, event.node, false});
    return true;
  }

  void Touch(int d) {
    if (is_touched_[size_t(d)]) return;
    is_touched_[size_t(d)] = true;
    touched_.push_back(d);
  }

  // Every device that something happened to takes its next node. Those that take no time end at
  // this moment, too, and devices take others in their place; then all count as at work before the
  // first of them starts.
  void StartNodes(double now) {
    bool instant = false;
    for (const int d : touched_) {
      TakeNext(d);
      const uint32_t node = taken_[size_t(d)];
      if (node == kNothing || costs_.SecondsOn(node, d) > 0) continue;
      StartTaken(d, now);
      instant = true;
    }
    if (instant) return;
    for (const int d : touched_) {
      StartTaken(d, now);
      is_touched_[size_t(d)] = false;
    }
    touched_.clear();
  }

  void TakeNext(int d) {
    auto& ready = ready_[size_t(d)];
    if (running_[size_t(d)] || ready.empty()) return;
    running_[size_t(d)] = true;
    taken_[size_t(d)] = ready.top();
    ready.pop();
    busy_cores_[HostOf(d)] += CoresOf(taken_[size_t(d)], d);
  }

  void StartTaken(int d, double now) {
    const uint32_t node = std::exchange(taken_[size_t(d)], kNothing);
    if (node == kNothing) return;
    const double seconds = costs_.SecondsOn(node, d) * Slowdown(node, d);
    result_.start[node] = now;
    result_.busy[size_t(d)] += seconds;
    Grow(d, costs_.output_bytes[node]);
    value_bytes_[node] = costs_.output_bytes[node];
    events_.push({now + seconds, node, true});
  }

  // That the node keeps at work.
  int CoresOf(uint32_t node, int d) const {
    return costs_.seconds[node] > 0 ? costs_.machines->devices[size_t(d)].cores : 0;
  }

  // How many times as long the node takes as with the host to itself.
  double Slowdown(uint32_t node, int d) const {
    const Machines& machines = *costs_.machines;
    const size_t host = HostOf(d);
    const int own = machines.devices[size_t(d)].cores;
    const double others = double(busy_cores_[host] - own);
    const double part = std::min(1.0, others / double(std::max(1, machines.machine.cores - own)));
    const int shared = host < machines.shared_cores.size() ? machines.shared_cores[host] : 0;
    const double turns = shared > 0 ? std::max(1.0, double(busy_cores_[host]) / shared) : 1;
    return (1 + (costs_.crowding[node] - 1) * part) * turns;
  }

  void End(uint32_t node, double now) {
    const int d = DeviceOf(node);
    busy_cores_[HostOf(d)] -= CoresOf(node, d);
    free_since_[size_t(d)] = now;
    result_.end[node] = now;
    result_.seconds = std::max(result_.seconds, now);
    running_[size_t(d)] = false;
    for (const StepCosts::Edge& edge : costs_.inputs(node)) ReadBy(node, edge);
    bool read = false;
    for (const StepCosts::Edge& edge : costs_.outputs(node)) {
      const int to = DeviceOf(edge.node);
      read = read || to == d;
      Arrive(edge.node, to == d ? now : Transfer(node, edge, d, to, now));
    }
    if (!read) live_[size_t(d)] -= std::exchange(value_bytes_[node], 0);
  }

  // The node has read an input: whoever is the last to read it on this device frees it.
  void ReadBy(uint32_t node, const StepCosts::Edge& edge) {
    const int d = DeviceOf(node);
    if (DeviceOf(edge.node) == d) {
      // Of several outputs of a node the memory is freed with the last.
      if (--readers_[edge.value] == 0 && value_bytes_[edge.node] > 0) {
        const double bytes = std::min(edge.bytes, value_bytes_[edge.node]);
        value_bytes_[edge.node] -= bytes;
        live_[size_t(d)] -= bytes;
      }
      return;
    }
    const auto copy = copies_.find(CopyKey(edge.value, d));
    if (copy != copies_.end() && --copy->second.readers == 0) live_[size_t(d)] -= edge.bytes;
  }

  void Arrive(uint32_t node, double time) {
    arrived_[node] = std::max(arrived_[node], time);
    if (--waits_[node] == 0) events_.push({arrived_[node], node, false});
  }

  // When the value is there.
  double Transfer(uint32_t node, const StepCosts::Edge& edge, int from, int to, double now) {
    auto [copy, fresh] = copies_.try_emplace(CopyKey(edge.value, to));
    if (fresh) {
      const topology::Link& link = costs_.machines->Between(from, to);
      double& link_free = link_free_[size_t(from) * devices_ + size_t(to)];
      const double start = std::max(now, link_free);
      link_free = start + (link.bytes_per_second > 0 ? edge.bytes / link.bytes_per_second : 0);
      copy->second.end = link_free + link.latency;
      result_.transfers.push_back(
          {node, edge.value, from, to, start, copy->second.end, edge.bytes});
      Grow(to, edge.bytes);
    }
    ++copy->second.readers;
    return copy->second.end;
  }

  void Grow(int d, double bytes) {
    live_[size_t(d)] += bytes;
    result_.peak_bytes[size_t(d)] = std::max(result_.peak_bytes[size_t(d)], live_[size_t(d)]);
  }

  uint64_t CopyKey(uint32_t value, int device) const {
    return uint64_t(value) * devices_ + uint64_t(device);
  }

  struct Copy {
    double end = 0;
    int readers = 0;
  };
  using Ready = std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>>;

  const StepCosts& costs_;
  const std::span<const int> device_;
  const size_t count_;
  const size_t devices_;
  std::vector<uint32_t> waits_;
  std::vector<double> arrived_;
  std::vector<Ready> ready_;
  std::vector<bool> running_;
  std::vector<uint32_t> taken_;  // by device: the node that is about to start
  std::vector<int> touched_;     // devices that something happened to at this moment
  std::vector<bool> is_touched_;
  std::vector<int> busy_cores_;     // by host
  std::vector<double> free_since_;  // by device
  std::vector<double> live_;
  std::vector<int> readers_;         // by value: on the device that makes it
  std::vector<double> value_bytes_;  // by node: not freed yet
  absl::flat_hash_map<uint64_t, Copy> copies_;
  std::vector<double> link_free_;  // by (source, destination)
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  Simulation result_;
};

}  // namespace

Simulation Simulate(const StepCosts& costs, std::span<const int> device) {
  return Simulator(costs, device).Run();
}

std::vector<uint32_t> CriticalPath(const StepCosts& costs, std::span<const int> device,
                                   const Simulation& simulation) {
  std::vector<uint32_t> path;
  if (costs.size() == 0) return path;
  const auto last = std::max_element(simulation.end.begin(), simulation.end.end());
  auto at = uint32_t(last - simulation.end.begin());
  // Who ended on a device, by time.
  std::vector<std::vector<uint32_t>> by_device(size_t(costs.machines->size()));
  for (uint32_t n = 0; n < costs.size(); ++n) {
    by_device[size_t(device[costs.group[n]])].push_back(n);
  }
  for (auto& nodes : by_device) {
    std::stable_sort(nodes.begin(), nodes.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(simulation.start[a], simulation.end[a]) <
             std::pair(simulation.start[b], simulation.end[b]);
    });
  }
  std::unordered_map<uint64_t, double> came;  // (value, device) -> when
  for (const TransferTime& t : simulation.transfers) {
    came[uint64_t(t.value) * by_device.size() + uint64_t(t.destination)] = t.end;
  }
  for (;;) {
    path.push_back(at);
    const double start = simulation.start[at];
    if (start <= 0) break;
    const int d = device[costs.group[at]];
    // The input that came last, if that is what it waited for; else the node before it on the lane.
    double latest = -1;
    uint32_t next = at;
    for (const StepCosts::Edge& edge : costs.inputs(at)) {
      const int from = device[costs.group[edge.node]];
      const double there = from == d ? simulation.end[edge.node]
                                     : came[uint64_t(edge.value) * by_device.size() + uint64_t(d)];
      if (there > latest) {
        latest = there;
        next = edge.node;
      }
    }
    if (latest < start) {
      const auto& nodes = by_device[size_t(d)];
      const auto here = std::find(nodes.begin(), nodes.end(), at);
      if (here == nodes.begin()) break;
      next = *std::prev(here);
    }
    if (next == at) break;
    at = next;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace tutti::placement
