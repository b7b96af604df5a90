#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/cluster/remote/network.h"
#include "tutti/cluster/remote/peer.h"
#include "tutti/runtime/executor/lane_threads.h"

namespace tutti {

// What a task answers to other processes; a client answers nothing. Called on threads of the
// network, and must not block. Thread-safe.
class Services {
 public:
  virtual ~Services() = default;
  // A request on the link, to be answered by a kAnswer with the number of `call`.
  virtual void OnRequest(const std::shared_ptr<Peer>& peer, DataKind kind, uint64_t call,
                         PeerMessage message) = 0;
  virtual void OnControl(const std::shared_ptr<Peer>& peer, ControlMethod method,
                         std::string fields, std::vector<Tensor> tensors, ControlDone done) = 0;
  // The peer is gone: no call of it comes any more. CANCELLED: it ended in good order.
  virtual void OnLost(const std::shared_ptr<Peer>& peer, const absl::Status& reason) = 0;
};

// The other processes that this one communicates with. A task is connected when it is first needed.
// A task that was never reached may still be starting, and is retried until the caller's patience
// ends; one that was reached before and is lost gets one attempt. Thread-safe.
class TaskPeers final : public net::LinkEvents, public ControlHandler {
 public:
  struct Options {
    net::TaskIdentity self;
    // Lines that tell the cluster (ClusterSpec::Fingerprint), which tasks compare when they meet;
    // empty for a client.
    std::vector<std::string> fingerprint;
    // Memory for what comes for a device of this process, or, for "", for everything else.
    std::function<MemoryPool&(std::string_view device)> pool;
  };
  using GetDone = std::function<void(absl::StatusOr<std::shared_ptr<Peer>>)>;

  explicit TaskPeers(Options options);
  ~TaskPeers() override;  // REQUIRES: Stop was called, and the network calls no more

  // Before anything else. Both outlive this object; `services` may be null.
  void Start(Network* network, Services* services);
  // Closes all links with `reason`, and waits until nobody connects any more. Later calls fail, and
  // the network is not called any more.
  void Stop(const absl::Status& reason);

  // Fences that process: its links are closed, new ones are closed as soon as they are made, and
  // messages that still arrive from it are ignored.
  void Fence(const net::TaskIdentity& process, const absl::Status& why);

  // The peer of that task, if there is a connection. Null otherwise.
  std::shared_ptr<Peer> Find(const std::string& task) const;
  // The same, connecting if need be, for at most `patience_nanos`. `done` may be called at once.
  void Get(const std::string& task, int64_t patience_nanos, GetDone done);
  // All that there is a link to.
  std::vector<std::shared_ptr<Peer>> All() const;
  // What has travelled on all links so far, those that have ended included.
  net::Link::Counters Traffic() const;
  // The same of the links to that task that there are.
  net::Link::Counters TrafficWith(const std::string& task) const;

  struct Refusals {
    uint64_t links = 0;     // of older or fenced processes of a task, or of another cluster
    uint64_t messages = 0;  // and calls, of fenced processes
  };
  // What was refused so far.
  Refusals Refused() const;

  const net::TaskIdentity& self() const { return options_.self; }

  absl::Status Place(net::Link& link, std::string_view header, std::span<const uint64_t> sizes,
                     std::span<net::Bytes> places) override;
  void Received(net::Link& link, std::string_view header,
                std::vector<net::Payload> payloads) override;
  void Broken(net::Link& link, const absl::Status& reason) override;
  void Handle(ControlMethod method, ControlRequest request, ControlDone done) override;

 private:
  struct Waiter {
    GetDone done;
    int64_t deadline = 0;  // each has its own patience, whoever asked first
  };
  struct Slot {
    std::shared_ptr<Peer> peer;  // ready, or null
    bool reached = false;        // once
    bool connecting = false;
    std::vector<Waiter> waiting;
  };

  // Null, and the link closed, if the process is fenced off.
  std::shared_ptr<Peer> PeerOf(net::Link& link);
  absl::Status FencedOff(const net::TaskIdentity& process) const;  // REQUIRES: mutex_ is held
  void Connect(const std::string& task);
  // The deadline of one connection attempt: no waiter is answered after its own deadline.
  int64_t EndOfTry(const std::string& task, int64_t nanos) const;
  // Answers all waiters, or, if another attempt may succeed, those whose deadline has passed. True
  // if waiters are left.
  bool Answer(const std::string& task, absl::StatusOr<std::shared_ptr<Peer>> peer);
  absl::StatusOr<std::shared_ptr<Peer>> Reach(const std::string& task, int64_t deadline);
  void OnHello(const std::shared_ptr<Peer>& peer, uint64_t call, std::string_view fields);

  const Options options_;
  Network* network_ = nullptr;
  Services* services_ = nullptr;
  mutable std::mutex mutex_;
  int connecting_ = 0;
  std::condition_variable connected_;  // connecting_ is 0
  absl::Status stopped_;
  std::map<net::Link*, std::shared_ptr<Peer>> by_link_;
  net::Link::Counters ended_;  // of links that have ended
  Refusals refused_;           // but those that the network refused
  std::map<std::string, Slot> by_task_;
  std::map<std::pair<std::string, uint64_t>, absl::Status> fenced_;  // by task and incarnation
  LaneThreads threads_;                                              // last: its jobs use the rest
};

}  // namespace tutti
