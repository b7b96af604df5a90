#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/train/strategies/peers.h"

namespace tutti {

struct ParameterServers;
struct WorkerState;

// Workers that meet in queues on the first parameter server. Texts go to worker 0 and come back
// from it, all together. A thread waits for the failure of any worker, and another one looks
// whether all are still there; should one fail or be lost, every exchange ends with that, and so
// does every run that was given the token aborted().
class QueuePeers final : public Peers {
 public:
  explicit QueuePeers(const ParameterServers& servers);
  ~QueuePeers() override;

  int workers() const override { return workers_; }
  int rank() const override { return rank_; }
  std::vector<std::string> Gather(std::string_view what, std::string_view own) override;
  void Sum(std::string_view what, std::span<double> values) override;
  void Abort(Code code, std::string_view message) override;
  std::string Failure() const override;
  CommunicationStats stats() const override { return {}; }

  // Asks for a stop when a worker has failed.
  std::stop_token aborted() const { return aborted_.get_token(); }
  // To be called in a handler of an Error: throws the failure of a worker if that is why a run has
  // ended, else the Error itself.
  [[noreturn]] void Rethrow(const Error& error) const;

 private:
  struct Nodes;
  struct Letter;
  std::vector<Tensor> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                          const Node* target);
  std::vector<std::string> Collect(std::string_view what, std::string_view own);
  void Send(int to, const Letter& letter);
  Letter Receive(int from_queue);
  void WatchFailures();
  void WatchWorkers(const std::stop_token& stop);
  void SetFailure(Code code, std::string_view text);

  const int workers_;
  const int rank_;
  double start_timeout_;  // of the first exchange; 0 after it
  Graph graph_;
  const std::unique_ptr<Nodes> nodes_;
  std::optional<Session> session_;
  mutable std::mutex mutex_;
  std::string failure_;
  Code failure_code_ = Code::kAborted;
  std::stop_source aborted_;
  std::stop_source closing_;
  const std::function<std::vector<WorkerState>()> look_;
  std::thread watch_;
  std::thread look_thread_;
};

}  // namespace tutti
