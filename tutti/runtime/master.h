#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/inlined_vector.h"
#include "tutti/base/status.h"
#include "tutti/compile/pipeline.h"
#include "tutti/graph/graph.h"
#include "tutti/runtime/worker.h"

namespace tutti {

// An output of the session's graph.
struct OutputId {
  int64_t node = 0;  // Node::id()
  int32_t index = 0;
};

// One step as a client asks for it. Owns what it holds.
struct MasterRunRequest {
  int64_t step = 0;  // chosen by the client; no two runs of a session have the same
  absl::InlinedVector<OutputId, 8> feeds;
  TensorList feed_values;  // parallel to feeds
  absl::InlinedVector<OutputId, 8> fetches;
  absl::InlinedVector<int64_t, 8> targets;  // ids of nodes
  int64_t timeout_nanos = 0;                // 0: none
  bool trace = false;
  // The calling thread has nothing to do until the answer comes, so work may be done on it. Not
  // sent.
  bool caller_waits = false;
};

// What a Session talks to: it turns requests into compiled steps, gives the parts to workers and
// runs them. One object serves one session. Asynchronous: each call returns at once or after doing
// the work, and `done` is called exactly once, on any thread, perhaps before the call returns.
// Thread-safe.
class Master {
 public:
  using Done = std::function<void(absl::Status)>;
  // The response's results are parallel to the request's fetches.
  using RunDone = Worker::RunDone;
  virtual ~Master() = default;

  // The graph to run; it outlives the master. A master in another process takes a copy before it
  // returns.
  virtual void Create(const Graph& graph, Done done) = 0;
  // The graph has grown.
  virtual void Extend(const Graph& graph, Done done) = 0;
  // Takes what it needs out of the request.
  virtual void Run(MasterRunRequest&& request, RunDone done) = 0;
  // Ends one run with `reason`, which is not OK, also one whose Run has not come yet. CleanUp must
  // follow.
  virtual void Abort(int64_t step, absl::Status reason) = 0;
  // Forgets an Abort. No call comes for this step any more.
  virtual void CleanUp(int64_t step) = 0;
  // Why nodes are where they are: what Session::Explain tells, as JSON.
  // FAILED_PRECONDITION when there is none yet.
  using ExplainDone = std::function<void(absl::StatusOr<std::string>)>;
  virtual void Explain(ExplainDone done) {
    done(absl::UnimplementedError("this kind of session cannot explain its placement"));
  }
  // Ends running steps with CANCELLED; later ones fail.
  virtual void Close(Done done) = 0;
};

}  // namespace tutti
