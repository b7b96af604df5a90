#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti::tools {

// What `tutti explain ALGORITHM` was asked for.
struct ExplainOptions {
  std::string algorithm;
  std::string operation = "all-reduce";
  int ranks = 0;  // 0: as many as --values has, else 4
  int segments = 1;
  int root = 0;
  int servers = 1;
  bool own_hosts = false;
  std::vector<int> hosts;
  std::string direction = "right";
  std::string values;
  bool verify = false;
  bool text = false;
  std::string svg;  // a file to write
};

// What `tutti explain cost` was asked for.
struct CostOptions {
  std::string bytes;  // empty: what the topology's model has
  int ranks = 0;      // 0: the topology's replicas
  std::string link;
  std::string latency = "0s";
  std::string reduce;  // empty: in no time
  std::string topology;
  int segments = 0;          // 0: what is best for each algorithm, of 1, 4, 16 and 64
  std::vector<int> servers;  // empty: 1 and one beside each worker
};

// How the terminal looks. Of(stdout): colour if it is a terminal and NO_COLOR is not set.
struct Screen {
  bool color = false;
  int width = 100;
  static Screen OfStdout();
};

// What is to be printed. Options that make no sense, and algorithms that cannot do what is asked,
// are errors that name the option.
absl::StatusOr<std::string> Explain(const ExplainOptions& options, const Screen& screen);
absl::StatusOr<std::string> ExplainCost(const CostOptions& options);

}  // namespace tutti::tools
