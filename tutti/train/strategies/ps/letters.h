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
  int64_t from = 0;    // the worker
  int64_t start = 0;   // revision at which the worker's process came that it is from or for
  int64_t number = 0;  // of the exchange
  bool late = false;   // an answer to an exchange that was over when the question came
  std::string what;
  std::string text;
};

// A queue on the first server for each worker, from which only it takes. All workers make one, with
// graphs of their own. Methods throw Error; they may be called by several threads.
class Letters {
 public:
  explicit Letters(const ParameterServers& servers);

  void Send(int to, const Letter& letter, const RunOptions& options);
  Letter Receive(int worker, const std::stop_token& stop, std::chrono::nanoseconds timeout = {});

 private:
  Graph graph_;
  Output numbers_, what_, text_;  // placeholders
  std::vector<const Node*> send_;
  std::vector<std::vector<Output>> receive_;
  std::optional<Session> session_;
};

}  // namespace tutti
