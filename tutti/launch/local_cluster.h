#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "tutti/net/socket.h"

namespace tutti {

struct LocalClusterOptions {
  std::string program;              // the command `tutti`
  std::map<std::string, int> jobs;  // how many tasks each has: {{"ps", 2}, {"worker", 1}}
  std::string not_started = {};     // a job whose tasks the caller is itself
  int devices = 1;                  // of every task
  int cores = 0;                    // of every device; 0: an even share
  double start_seconds = 20;        // as in ServerOptions
  std::string coordinator = {};     // as in ServerOptions
};

// A cluster of `tutti server` processes on this host, at ports of loopback that were free: for
// benchmarks and tests. Tasks are named "/job:ps/task:0". The processes are killed with this
// object, and when this process ends. Not thread-safe.
class LocalCluster {
 public:
  // Returns when all tasks listen. Throws Error when one does not start.
  explicit LocalCluster(LocalClusterOptions options);
  ~LocalCluster();
  LocalCluster(const LocalCluster&) = delete;
  LocalCluster& operator=(const LocalCluster&) = delete;

  // The cluster as ServerOptions takes it.
  const std::map<std::string, std::map<int, std::string>>& jobs() const { return jobs_; }
  std::string target(const std::string& task) const;  // "tutti://127.0.0.1:41234"

  pid_t process(const std::string& task) const { return tasks_.at(task).pid; }
  void Signal(const std::string& task, int signal);
  void Kill(const std::string& task);      // SIGKILL, and waits for the end
  int Terminate(const std::string& task);  // SIGTERM; gives the exit code, 128 + n for a signal
  int Wait(const std::string& task);       // until it ends by itself; the same
  void Start(const std::string& task);     // again, after Kill or Terminate

 private:
  struct Task {
    std::string job;
    int index = 0;
    pid_t pid = -1;
    int output = -1;  // its stdout
  };
  void Spawn(Task& task);
  void AwaitListening(const std::string& name, Task& task);
  int Reap(Task& task);

  const LocalClusterOptions options_;
  std::map<std::string, std::map<int, std::string>> jobs_;
  std::vector<net::Socket> held_;  // the ports of all tasks
  std::string folder_;
  std::map<std::string, Task> tasks_;
};

}  // namespace tutti
