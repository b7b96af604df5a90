#include "tutti/launch/job_guard.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/launch/system_limits.h"

namespace tutti {
namespace {

constexpr int kMostGroups = 4096;

// The guard's whole life, after a fork: nothing may allocate. Positive numbers are groups to watch,
// negative ones groups to forget; the end of the connection is the end of the other process.
[[noreturn]] void Guard(int socket) {
  pid_t groups[kMostGroups] = {};
  pid_t message = 0;
  ssize_t count = 0;
  while ((count = ::read(socket, &message, sizeof(message))) != 0) {
    if (count != ssize_t(sizeof(message))) {
      if (count < 0 && errno == EINTR) continue;
      break;
    }
    const pid_t sought = message > 0 ? 0 : -message;
    for (pid_t& group : groups) {
      if (group != sought) continue;
      group = message > 0 ? message : 0;
      break;
    }
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

// Nothing of the other process's may be kept open but the socket; least of all its output, whose
// reader waits for the end.
void CloseAllBut(int socket) {
  if (socket > 0) ::close_range(0, unsigned(socket) - 1, 0);
  ::close_range(unsigned(socket) + 1, ~0u, 0);
}

// A guard that was killed is no reason to die.
void Tell(int socket, pid_t message) { ::send(socket, &message, sizeof(message), MSG_NOSIGNAL); }

}  // namespace

absl::StatusOr<JobGuard> JobGuard::Start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ResourceExhausted("cannot make a pair of sockets: {}", DescribeSystemError(errno));
  }
  // A grandchild: nobody has to wait for it, and signals of the terminal do not reach it.
  const pid_t child = ::fork();
  if (child == 0) {
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    CloseAllBut(ends[0]);
    Guard(ends[0]);
  }
  const int error = errno;
  ::close(ends[0]);
  if (child < 0) {
    ::close(ends[1]);
    return ResourceExhausted("cannot fork: {}", DescribeSystemError(error));
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return JobGuard(ends[1]);
}

JobGuard::JobGuard(JobGuard&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}

JobGuard::~JobGuard() {
  if (socket_ >= 0) ::close(socket_);
}

void JobGuard::Watch(pid_t group) const { Tell(socket_, group); }

void JobGuard::Forget(pid_t group) const { Tell(socket_, -group); }

}  // namespace tutti
