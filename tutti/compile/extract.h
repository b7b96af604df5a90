#pragma once

#include <span>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/graph/graph.h"

namespace tutti {

// What a client asks to run: outputs that get a value from outside, with the concrete type of that
// value; outputs whose value goes back; nodes that must run.
struct StepRequest {
  struct Fed {
    Output output;
    ValueType type;
  };
  std::vector<Fed> feeds;
  std::vector<Output> fetches;
  std::vector<const Node*> targets;
};

// The part of `graph` that the request needs, with a Placeholder of concrete shape for each feed,
// all shapes inferred anew from those. INVALID_ARGUMENT when a feed does not fit what it replaces,
// or a placeholder that is needed is not fed.
absl::StatusOr<Program> Extract(const Graph& graph, const StepRequest& request);

}  // namespace tutti
