#pragma once

#include <string>
#include <vector>

#include "tutti/cluster/environment/roles.h"
#include "tutti/launch/hosts.h"
#include "tutti/launch/remote_task.h"

namespace tutti {

struct LaunchOptions {
  RoleCounts roles;
  std::vector<std::string> command;  // program and its arguments
  std::vector<HostSlots> hosts;      // where tasks run, by ssh; empty: here
  SshOptions ssh;                    // for these
  int cores_per_worker = 0;          // 0: an even share of all
  int devices = 0;                   // of every task; 0: as the program likes
  int restarts = 0;                  // of lost tasks, in all
  std::string log_dir;               // a file a task, worker-0.log; empty: none
  double grace_seconds = 5;          // between the first failure and the end of the others by force
  double stopped_seconds = 30;       // until a stopped task that all wait for is ended by force
  double first_pause_seconds = 1;    // before the first restart; each later one takes twice as long
};

// Runs the command as the tasks of one job, and waits for their end, on this host or, by ssh, on
// others (host_agent.h), in this process's folder. Each gets a TF_CONFIG, its port as a descriptor
// that listens already (net/inherited_socket.h), the job's token (TUTTI_JOB_TOKEN; a random one
// unless it is set), and its share of this process's cores:
// those that train divide them, so do the ps tasks, and the evaluator may use any. Their output
// comes out line by line, with the role in front; the job's progress is one line. Signals that ask
// for an end (SIGINT, SIGTERM, SIGHUP, SIGQUIT) go to all. Tasks that are stopped, or run on after
// others have ended, are told of by name; one that is stopped when all others have ended is ended
// after a while. A lost task is started again as RestartPolicy says, alone or with all others. When
// a task fails for good the others may end by themselves for a while, then they are ended; the
// first cause is told. Nothing is left running, not even what a task started in a session of its
// own; when this process is killed by SIGKILL tasks and what they started end too, but not what
// left its task's process group. Makes this process a child subreaper.
//
// Returns the exit code: 0, or that of the task that failed first and not for the loss of another
// (128 + n for signal n), or 2 for options that make no sense (told on stderr).
int Launch(const LaunchOptions& options);

}  // namespace tutti
