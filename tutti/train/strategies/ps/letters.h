#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/client/session.h"

namespace tutti {

struct ParameterServers;

// What a worker sends to another by way of the first server.
struct Letter {
  int64_t from = 0;    // the worker; of a failure: its code
  int64_t start = 0;   // which start of the worker's process the letter comes from or goes to
  int64_t number = 0;  // of the exchange
  bool late = false;   // an answer to an exchange that was over when the question came
  std::string what;
  std::string text;
};

// Two queues on the first server for each worker, from which only it takes: one for letters, one
// for failures. All workers make one, with graphs of their own. Methods throw Error; they may be
// called by several threads.
class Letters {
 public:
  explicit Letters(const ParameterServers& servers);

  void Send(int to, const Letter& letter, const RunOptions& options);
  Letter Receive(int worker, const std::stop_token& stop, std::chrono::nanoseconds timeout = {});
  void SendFailure(int to, const Letter& letter, const RunOptions& options);
  Letter ReceiveFailure(int worker, const std::stop_token& stop);

 private:
  void Put(const Node* queue, const Letter& letter, const RunOptions& options);
  Letter Take(const std::vector<Output>& queue, const RunOptions& options);

  Graph graph_;
  Output numbers_, what_, text_;  // placeholders
  std::vector<const Node*> send_, send_failure_;
  std::vector<std::vector<Output>> receive_, receive_failure_;
  std::optional<Session> session_;
};

}  // namespace tutti
