#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tutti/client/session.h"
#include "tutti/train/strategies/peers.h"
#include "tutti/train/strategies/ps/letters.h"

namespace tutti {

struct ParameterServers;
namespace net {
class Membership;
}

// Workers that exchange texts through queues on the first parameter server. Texts go to worker 0,
// which sends all of them back to everyone; a restarted worker gets the exchanges that it has
// missed (queue_peers.cc). The membership of the job decides which workers are present, lost or
// failed; a separate thread follows it. A failure ends every exchange, and every run that was given
// the token aborted().
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
  absl::Status FailureStatus() const;  // the same
  CommunicationStats stats() const override { return {}; }

  // Asks for a stop when a worker has failed.
  std::stop_token aborted() const { return aborted_.get_token(); }
  // To be called in a handler of an Error: throws the failure of a worker if that is why a run has
  // ended, that this worker has lost its place if so, else the Error itself.
  [[noreturn]] void Rethrow(const Error& error) const;

  // The same for the Error of a step of this worker: one that its data caused, as a row outside a
  // table, gets the worker's name.
  [[noreturn]] void RethrowOfStep(const Error& error) const;

  // Did the last Gather answer with what the others had exchanged before? Then this worker was
  // started again while they trained.
  bool late() const { return late_; }
  // Waits for the other workers to end too. A worker that disappears afterwards is not lost.
  void End();

  // What worker 0 does when others are lost and are left out. Called on threads of this object, one
  // after the other; `lost` also at once for those that are lost already. `back` is called before
  // the worker gets its first answer.
  struct LossHandler {
    std::function<void(int rank, const std::string& why)> lost;
    std::function<void(int rank)> back = [](int) {};
    // Called often, on the thread that follows the others. It must not wait for a worker.
    std::function<void()> look = [] {};
  };
  // An empty one takes the handler away, and waits until it does not run.
  void SetLossHandler(std::optional<LossHandler> handler);
  // Those that are left out, and that the handler has dealt with.
  std::vector<int> Lost();

  // After so long a wait, and again after as long, WarnOfLate is due.
  int64_t late_nanos() const { return late_nanos_; }
  // Warns that `what` has waited for workers since then, which are alive.
  void WarnOfLate(std::string_view what, int64_t since, const std::vector<int>& late) const;

 private:
  // As this worker knows another.
  struct Member {
    int64_t start = 0;      // revision at which its process came; 0: it has not come
    int unseen = 0;         // looks in a row at which the membership had not told of that process
    std::string lost = {};  // why it is lost; empty: it is not
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
  void Watch(const std::stop_token& stop);
  void LookAround();
  void TakeStopRequest();
  void LookAt(int rank);
  bool IsMember(const std::string& task, int64_t revision) const;
  void Lose(int rank, int64_t start, std::string_view why);
  void SetFailure(Code code, std::string_view text);
  std::chrono::nanoseconds StartTimeout() const;
  void ThrowIfFailed() const;  // REQUIRES: mutex_ is held

  const int workers_;
  const int rank_;
  const Losses losses_;
  const std::shared_ptr<net::Membership> membership_;  // null: this worker is alone
  const std::vector<std::string> worker_tasks_, server_tasks_;
  const int64_t start_;   // revision at which this process came
  double start_timeout_;  // of the first exchange; 0 after it
  const int64_t late_nanos_;
  int64_t next_ = 0;  // number of the next exchange
  bool late_ = false;
  bool stop_taken_ = false;  // of the thread that follows the others
  Letters letters_;

  std::mutex handling_;  // taken before mutex_; held while a member comes or goes
  std::optional<LossHandler> handler_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> present_;
  std::vector<Member> members_;                       // by rank; of worker 0
  std::map<int64_t, std::map<int, Letter>> waiting_;  // by exchange and worker; of worker 0
  std::vector<Exchange> over_;                        // by number; of worker 0
  absl::Status failure_;

  std::atomic<bool> ended_{false};
  std::stop_source aborted_;
  std::stop_source closing_;
  std::vector<std::thread> threads_;
};

}  // namespace tutti
