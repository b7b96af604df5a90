#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "tutti/compile/extract.h"
#include "tutti/graph/graph.h"

namespace tutti::placement {

// Where variables and queues live that nobody has placed: decided once, for all steps and all
// sessions of a server, because state does not move. By container and name. Thread-safe.
class StateHomes {
 public:
  // The device; empty: not decided.
  std::string Find(const Node& state) const;
  // Keeps the first that is given.
  void Set(const Node& state, const std::string& device);
  // Of all states of `graph` that have a home, by the node's name.
  std::unordered_map<std::string, std::string> Of(const Graph& graph) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::string> devices_;
};

// Has the node state that others refer to: a variable, a queue, a mutex?
bool IsState(const Node& node);

// A step that has all of the graph in it that programs run again and again: every update, but not
// initial values, and nothing of checkpoints; without updates, every result that nobody reads. What
// a placeholder leaves open is taken from `like`, a step that is about to run, where that feeds it,
// else kAssumedDim. State is placed for this step, whichever runs first.
StepRequest WholeStep(const Graph& graph, const StepRequest& like);

}  // namespace tutti::placement
