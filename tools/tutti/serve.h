#pragma once

#include <string>

namespace tutti::tools {

constexpr const char* kNuma = "numa";

struct ServeOptions {
  bool tf_config = false;     // the cluster and the task are those of TF_CONFIG
  std::string config;         // or those of this file (tutti/cluster/cluster_file.h)
  std::string job;            // in place of what the file says
  int task = -1;              // the same
  std::string devices = "1";  // how many, or "numa": one per NUMA node
  int cores = 0;              // of each device; 0: an even share
  std::string device_memory;  // that placement may give each; empty: the host's
  std::string bind;           // where to listen, if not at the task's address
  std::string token_file;     // holds the cluster's token
  bool insecure = false;
  std::string coordinator;  // as in ServerOptions
  double start_seconds = 60;
  std::string http;  // PORT or HOST:PORT of /metrics and /healthz; empty: none
};

// Is a task of a cluster until SIGINT or SIGTERM, and gives the exit code: 128 when another task
// was lost that this one needs, so that a launcher starts it again. Throws Error.
int Serve(const ServeOptions& options);

struct StatusOptions {
  std::string target;
  std::string token_file;
  bool json = false;
};

// Prints what the tasks of a cluster tell of themselves. False when one of them does not answer.
bool PrintStatus(const StatusOptions& options);

struct ResetOptions {
  std::string target;
  std::string container;
  std::string token_file;
};

// Forgets the variables and queues of a container on all tasks of a cluster. Throws Error.
void Reset(const ResetOptions& options);

}  // namespace tutti::tools
