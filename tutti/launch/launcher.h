#pragma once

#include <string>
#include <vector>

namespace tutti {

struct LaunchOptions {
  int workers = 1;
  std::vector<std::string> command;  // program and its arguments
  int cores_per_worker = 0;          // 0: an even share of all
  std::string log_dir;               // a file a task, worker-0.log; empty: none
  double grace_seconds = 5;          // between the first failure and the end of the others by force
  double stopped_seconds = 30;       // until a stopped task that all wait for is ended by force
};

// Runs the command as so many worker tasks of one job on this host, and waits for their end. Each
// gets a TF_CONFIG with free ports, the job's token, and its share of this process's cores. Their
// output comes out line by line, with the role in front; the job's progress is one line. Signals
// that ask for an end (SIGINT, SIGTERM, SIGHUP, SIGQUIT) go to all. Tasks that are stopped, or run
// on after others have ended, are told of by name; one that is stopped when all others have ended
// is ended after a while. When a task fails the others may end by themselves for a while, then they
// are ended; the first cause is told. Nothing is left running, not even what a task started in a
// session of its own; when this process is killed by SIGKILL tasks and what they started end too,
// but not what left its task's process group. Makes this process a child subreaper.
//
// Returns the exit code: 0, or that of the task that failed first and not for the loss of another
// (128 + n for signal n), or 2 for options that make no sense (told on stderr).
int Launch(const LaunchOptions& options);

}  // namespace tutti
