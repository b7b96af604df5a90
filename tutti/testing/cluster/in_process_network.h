#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/cluster/remote/network.h"
#include "tutti/cluster/remote/peers.h"
#include "tutti/runtime/executor/lane_threads.h"

namespace tutti::testing {

// A network without sockets, for several "processes" in one: links are queues with a thread at each
// end, control calls are function calls on other threads. What is sent is copied, as if it had
// travelled. A process can be lost as if it was killed. Thread-safe.
class InProcessNetwork {
 public:
  InProcessNetwork();
  ~InProcessNetwork();  // REQUIRES: all have left

  // Joins a process: gives the network that its TaskPeers starts with. Lives as long as this
  // object.
  Network* Join(const std::string& task, TaskPeers* peers);
  // The process does not answer any more; its links break.
  void Lose(const std::string& task);
  // The same, and waits until nothing of the network calls these TaskPeers any more.
  void Leave(const std::string& task, TaskPeers* peers);

  // Bytes of payloads that were sent and never Taken, over all links.
  int64_t untaken_bytes() const;

 private:
  class Link;
  class Port;
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace tutti::testing
