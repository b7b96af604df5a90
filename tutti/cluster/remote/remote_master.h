#pragma once

#include <memory>
#include <string>

#include "tutti/cluster/remote/peers.h"
#include "tutti/runtime/master.h"

namespace tutti {

// The master of a session in another process: the task that the session is connected to. Sends the
// graph once, and later only what was added to it since. Thread-safe.
class RemoteMaster final : public Master {
 public:
  // `task`: the name under which `peers` reaches it. `patience_nanos`: for how long it is tried.
  RemoteMaster(std::shared_ptr<TaskPeers> peers, std::string task, int64_t patience_nanos,
               CompileOptions options);
  ~RemoteMaster() override;  // ends the session, and waits until its steps have ended

  void Create(const Graph& graph, Done done) override;
  void Extend(const Graph& graph, Done done) override;
  void Run(MasterRunRequest&& request, RunDone done) override;
  void Abort(int64_t step, absl::Status reason) override;
  void CleanUp(int64_t step) override;
  void Explain(ExplainDone done) override;
  void Close(Done done) override;

 private:
  struct Shared;
  absl::Status Grow(const Graph& graph);

  const std::shared_ptr<TaskPeers> peers_;
  const std::string task_;
  const int64_t patience_nanos_;
  const CompileOptions options_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tutti
