#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tutti/runtime/deadlines.h"
#include "tutti/runtime/master.h"

namespace tutti {

// A master in the client's process, for the workers it is given. Compiled steps are kept by (feeds
// with dtype and shape, fetches, targets); of more than `most_steps`, those not used for longest
// go.
class LocalMaster final : public Master {
 public:
  LocalMaster(std::shared_ptr<Worker> worker, CompileOptions options, size_t most_steps = 64);
  ~LocalMaster() override;  // cancels what runs, and waits for it

  void Create(const Graph& graph, Done done) override;
  void Extend(const Graph& graph, Done done) override;
  void Run(const MasterRunRequest& request, Done done) override;
  void Close(Done done) override;

 private:
  using Key = std::vector<uint64_t>;
  struct Step;      // a compiled step
  class ListedRun;  // a run that Close can cancel

  // The compiled step for a request, from the cache or made now. A cancelled run gets none, unless
  // it was made already.
  absl::StatusOr<std::shared_ptr<Step>> FindStep(const MasterRunRequest& request,
                                                 const Cancellation& cancellation);
  absl::StatusOr<std::shared_ptr<Step>> Compile(const MasterRunRequest& request, Key key,
                                                const Cancellation& cancellation);
  absl::Status RunStep(const MasterRunRequest& request);
  void CancelRuns(const absl::Status& reason);  // those under way and to come; with mutex_ held

  const std::shared_ptr<Worker> worker_;
  const CompileOptions options_;
  const size_t most_steps_;
  const Graph* graph_ = nullptr;
  Deadlines deadlines_;
  std::atomic<int64_t> next_step_{0};

  std::mutex mutex_;
  bool closed_ = false;
  std::list<std::shared_ptr<Step>> steps_;  // most recently used first
  std::unordered_multimap<uint64_t, std::list<std::shared_ptr<Step>>::iterator> by_hash_;
  std::vector<Cancellation*> running_;
  std::condition_variable ended_;  // running_ got empty
};

}  // namespace tutti
