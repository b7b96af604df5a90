#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/train/strategies/peers.h"
#include "tutti/train/strategies/ps/letters.h"

namespace tutti {

struct ParameterServers;
struct WorkerState;

// Workers that meet in queues on the first parameter server. Texts go to worker 0 and come back
// from it, all together; one that is started again gets what it has missed (queue_peers.cc).
// Threads beside wait for the failure of any worker, and look whether the others are still there.
// A failure ends every exchange, and every run that was given the token aborted().
class QueuePeers final : public Peers {
 public:
  // What the loss of a worker means. That of worker 0 always ends the job.
  enum class Losses { kEndTheJob, kAreLeftOut };

  QueuePeers(const ParameterServers& servers, Losses losses);
  ~QueuePeers() override;

  int workers() const override { return workers_; }
  int rank() const override { return rank_; }
  std::vector<std::string> Gather(std::string_view what, std::string_view own) override;
  void Sum(std::string_view what, std::span<double> values) override;
  std::vector<int> Present() const override;
  void Abort(Code code, std::string_view message) override;
  std::string Failure() const override;
  CommunicationStats stats() const override { return {}; }

  // Asks for a stop when a worker has failed.
  std::stop_token aborted() const { return aborted_.get_token(); }
  // To be called in a handler of an Error: throws the failure of a worker if that is why a run has
  // ended, else the Error itself.
  [[noreturn]] void Rethrow(const Error& error) const;

  // Did the last Gather answer with what the others had exchanged before? Then this worker was
  // started again while they trained.
  bool late() const { return late_; }
  // Waits for the others to come to their end as well. Who is gone after it is not lost.
  void End();

  // What worker 0 does when others are lost and are left out. Called on threads of this object, one
  // after the other; `lost` also at once for those that are lost already. `back` is called before
  // the worker gets its first answer.
  struct LossHandler {
    std::function<void(int rank, const std::string& why)> lost;
    std::function<void(int rank)> back = [](int) {};
  };
  // An empty one takes the handler away, and waits until it does not run.
  void SetLossHandler(std::optional<LossHandler> handler);

 private:
  // As worker 0 knows another.
  struct Member {
    int64_t start = 0;         // that its letters come from; 0: it has sent none yet
    uint64_t incarnation = 0;  // as the cluster tells; 0: not known yet
    int64_t starts = 0;        // how many it has made
    int misses = 0;            // looks in a row that did not find it
    std::string lost = {};     // why it is lost; empty: it is not
  };
  // An exchange that is over: what every worker was told.
  struct Exchange {
    std::string what;
    std::vector<std::string> texts;
    std::vector<int> present;
  };

  std::vector<std::string> GatherFromAll(std::string_view what, std::string_view own);
  std::vector<std::string> GatherAtFirst(std::string_view what, std::string_view own);
  bool Complete(int64_t number) const;
  void AwaitAll(std::unique_lock<std::mutex>& lock, std::string_view what, int64_t number);
  void Answer(int to, int64_t start, int64_t number, Exchange exchange, bool late);
  void TakeLetters();
  void TakeLetter(Letter letter);
  void WatchFailures();
  void WatchWorkers(const std::stop_token& stop);
  void Look(int rank);
  void Lose(int rank, const std::string& task, const std::string& why);
  void SetFailure(Code code, std::string_view text);
  std::chrono::nanoseconds StartTimeout() const;
  void ThrowIfFailed() const;  // REQUIRES: mutex_ is held

  const int workers_;
  const int rank_;
  const Losses losses_;
  const std::function<WorkerState(int)> look_;
  const int64_t start_;   // of this process
  double start_timeout_;  // of the first exchange; 0 after it
  int64_t next_ = 0;      // number of the next exchange
  bool late_ = false;
  Letters letters_;

  std::mutex handling_;  // taken before mutex_; held while a member comes or goes
  std::optional<LossHandler> handler_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> present_;
  std::vector<Member> members_;                       // by rank; of worker 0
  std::map<int64_t, std::map<int, Letter>> waiting_;  // by exchange and worker; of worker 0
  std::vector<Exchange> over_;                        // by number; of worker 0
  std::string failure_;
  Code failure_code_ = Code::kAborted;

  std::atomic<bool> ended_{false};
  std::stop_source aborted_;
  std::stop_source closing_;
  std::vector<std::thread> threads_;
};

}  // namespace tutti
