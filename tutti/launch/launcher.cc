#include "tutti/launch/launcher.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <set>

#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/launch/job.h"
#include "tutti/launch/system_limits.h"
#include "tutti/launch/task_process.h"

namespace tutti {
namespace {

constexpr int kUsage = 2;

// Signals that ask for an end come through a file from here on.
int CatchSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaddset(&set, number);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

int Launch(const LaunchOptions& options) {
  const RoleCounts& roles = options.roles;
  if (roles.workers < 0 || roles.ps < 0 || (roles.workers == 0 && !roles.chief) ||
      options.command.empty()) {
    FormatTo(stderr,
             "tutti run: expected at least one worker, or a chief, and a program behind --\n");
    return kUsage;
  }
  const int signals = CatchSignals();
  if (signals < 0) {
    FormatTo(stderr, "tutti run: cannot take signals (signalfd): {}\n", DescribeSystemError(errno));
    return 1;
  }
  ::signal(SIGPIPE, SIG_IGN);  // a reader that goes away ends no job
  const std::set<pid_t> others = ChildrenOfThisProcess();
  int code = kUsage;
  {
    Job job(options);
    if (const absl::Status status = job.Start(signals); !status.ok()) {
      FormatTo(stderr, "tutti run: {}\n", MessageOf(status));
    } else {
      code = job.Run();
      EndChildrenExcept(others);
    }
  }
  ::close(signals);
  if (const absl::Status status = FinishStdout(); !status.ok()) {
    FormatTo(stderr, "tutti run: {}\n", MessageOf(status));
    return code == 0 ? 1 : code;
  }
  return code;
}

}  // namespace tutti
