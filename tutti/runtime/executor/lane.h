#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/spin.h"
#include "tutti/base/status.h"

namespace tutti {

class StepRun;
namespace collective {
class Communicator;
}

// Work that begins on a lane: the part of a step.
class LaneJob {
 public:
  // Starts, and does not wait for anything. Must not throw. The lane does not touch the job again.
  virtual void RunOnLane() = 0;

 protected:
  ~LaneJob() = default;
};

// What a lane is like. A lane that lasts for one step on its caller's thread takes the defaults.
struct LaneOptions {
  collective::Communicator* communicator = nullptr;  // for steps with collectives
  // How many nodes of a run it runs before it looks at the other runs.
  int64_t turn = std::numeric_limits<int64_t>::max();
  Patience patience = {};                                 // before it sleeps
  std::shared_ptr<std::atomic<int64_t>> busy_nanos = {};  // counts the time that it runs nodes
};

// The one thread that runs the nodes of a device, of several steps side by side: those of one run
// until it has none that is ready or its turn is over, then those of the next. Nodes that complete
// elsewhere come back through Push; a run that only waits for such nodes costs the lane nothing. It
// sleeps only when it has nothing to run. While a run with collectives is under way it also does
// the work of the communicator: some between two nodes, and all there is when it has nothing else
// to do. A Lane belongs to the thread that calls Drive; the others may only call Push and working.
class Lane {
 public:
  explicit Lane(const LaneOptions& options = {})
      : options_(options), left_(options.turn), owner_(std::this_thread::get_id()) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Node `node` of `run` is done. From any thread.
  void Push(StepRun* run, uint32_t node, absl::Status status);
  // `job` is to begin. From any thread.
  void Push(LaneJob* job);

  // Runs what is there and what comes until *done. Only one thread, the lane's, calls it.
  void Drive(const bool* done);

  // Is it running nodes at this moment? From any thread.
  bool working() const { return working_.load(std::memory_order_relaxed); }

  // The rest is for runs, on the lane's thread.

  // `run` wants to go on: it gets its turn after the runs that wait for theirs.
  void Enqueue(StepRun& run);
  // One more node is about to run; false if the turn is over.
  bool SpendOne() { return left_-- > 0; }
  // A run with collectives begins, or ends.
  void BeginCollectives() { ++communicating_; }
  void EndCollectives() { --communicating_; }
  // Null unless a run with collectives is under way.
  collective::Communicator* communicator() const {
    return communicating_ > 0 ? options_.communicator : nullptr;
  }

 private:
  struct Arrival {
    StepRun* run;  // null: a job
    LaneJob* job;
    uint32_t node;
    absl::Status status;
  };
  void Add(Arrival arrival);
  bool TakeArrivals();  // into taken_; false if there are none
  void HandleTaken();
  StepRun* Dequeue();  // null when no run waits for its turn
  // Waits until something has arrived.
  void Await();
  void AwaitAndCommunicate();
  void SetWorking(bool working);

  const LaneOptions options_;
  int64_t left_;  // nodes until the turn is over
  int communicating_ = 0;
  int64_t working_since_ = 0;
  StepRun* first_ = nullptr;  // runs that wait for their turn
  StepRun* last_ = nullptr;
  std::vector<Arrival> taken_;

  std::atomic<std::thread::id> owner_;
  std::atomic<bool> working_{false};
  std::atomic<bool> arrived_{false};  // arrivals_ is not empty
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asleep_ = false;
  bool in_communicator_ = false;
  std::vector<Arrival> arrivals_;
};

}  // namespace tutti
