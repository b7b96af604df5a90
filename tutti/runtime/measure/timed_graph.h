#pragma once

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/graph.h"
#include "tutti/runtime/master.h"

namespace tutti {

class LocalMaster;

// A graph of single nodes over placeholders, run as steps are on devices that workers have, without
// passes, so that every op is a node of its own. The best of a few traced runs counts: a
// disturbance makes a node slower, never faster. Not thread-safe.
class TimedGraph {
 public:
  using Outputs = std::vector<Output>;  // one for each device

  // `devices`: full names of devices of the workers. REQUIRES: `workers` has `home`.
  TimedGraph(WorkersByTask workers, std::string home, std::vector<std::string> devices);
  ~TimedGraph();
  TimedGraph(TimedGraph&&) noexcept;

  // A value that is fed.
  absl::StatusOr<Output> Feed(const Shape& shape);
  absl::StatusOr<Outputs> FeedAll(const Shape& shape);

  // A node on the device of that number.
  absl::StatusOr<const Node*> Add(const std::string& op, std::vector<Output> inputs,
                                  const AttrList& attrs = {}, int device = 0);
  // Adds the same node on every device. The copies run at about the same time, since every device
  // has the same list of nodes. Returns the node on the first device.
  absl::StatusOr<const Node*> AddAll(const std::string& op, const std::vector<Outputs>& inputs,
                                     const AttrList& attrs = {});

  // The shapes of values, for ops that take a shape as an input. Not measured.
  absl::StatusOr<Outputs> AddShapes(const Outputs& values);

  // Nothing is added after it. DEADLINE_EXCEEDED when a run takes longer than 10 s.
  absl::Status Run();

  // The best time of a run, as the caller sees it, and of a node of AddAll, the mean over all
  // devices. In seconds.
  double step() const { return step_; }
  double Of(const Node& node) const;

 private:
  static constexpr int kRuns = 5;
  static constexpr int64_t kMostNanos = 10'000'000'000;

  std::vector<std::string> devices_;
  std::unique_ptr<Graph> graph_ = std::make_unique<Graph>();
  MasterRunRequest request_;
  std::map<std::string, std::string> first_;  // of AddAll: by name, that of the first device's
  double step_ = std::numeric_limits<double>::infinity();
  std::map<std::string, double> best_;
  std::unique_ptr<LocalMaster> master_;  // last: it uses the rest
};

}  // namespace tutti
