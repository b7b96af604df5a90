#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "tutti/base/cancellation.h"
#include "tutti/base/status.h"
#include "tutti/graph/graph.h"
#include "tutti/runtime/worker.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// One step as a client asks for it.
struct MasterRunRequest {
  std::span<const Output> feeds;
  std::span<const Tensor* const> feed_values;  // parallel to feeds
  std::span<const Output> fetches;
  std::span<const Node* const> targets;
  std::span<Tensor> results;  // parallel to fetches; set when the step succeeds
  int64_t timeout_nanos = 0;  // 0: none
  StepTrace* trace = nullptr;
};

// What a Session talks to: it turns requests into compiled steps, gives the parts to workers and
// runs them. Asynchronous: `done` is called exactly once, from any thread, and what the request
// points to lives until then. Thread-safe.
class Master {
 public:
  using Done = std::function<void(absl::Status)>;
  virtual ~Master() = default;

  // The graph to run; it outlives the master or Close.
  virtual void Create(const Graph& graph, Done done) = 0;
  // The graph has grown.
  virtual void Extend(const Graph& graph, Done done) = 0;
  virtual void Run(const MasterRunRequest& request, Done done) = 0;
  // Ends running steps with CANCELLED; later ones fail.
  virtual void Close(Done done) = 0;
};

}  // namespace tutti
