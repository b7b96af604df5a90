#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/client/session.h"

namespace tutti {

// How parameter servers learn that a training is over: each waits at a queue of its own, and worker
// 0 puts a letter into all of them. Servers and worker 0 make one, with graphs of their own.
class EndOfTraining {
 public:
  explicit EndOfTraining(const std::vector<std::string>& devices);  // of the servers
  const Graph& graph() const { return graph_; }

  // Waits for the end; gives why the training failed, or "". Throws Error.
  std::string Await(Session& session, size_t server, const std::stop_token& stop) const;
  // Tells all servers. One that is gone is left out.
  void Tell(Session& session, std::string_view failure) const;

 private:
  Graph graph_;
  Output failure_;  // placeholder
  std::vector<const Node*> tell_;
  std::vector<Output> await_;
};

}  // namespace tutti
