#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/launch/task_process.h"

// How the launcher runs a task on another host: it starts ssh, which starts `tutti host-agent`
// there (host_agent.h). The agent listens at a port of its host and says so in one line; the
// launcher answers with a line that has the command, its environment and where to run it, so that
// no secret stands on a command line. Then what the task writes comes through ssh, its lines for
// the launcher (base/progress_text.h) among its output, and lines of the launcher go to the agent:
// signals, and a sign of life every second.
namespace tutti {

// What the agent runs.
struct RemoteCommand {
  std::vector<std::string> arguments;  // the program first
  std::vector<std::pair<std::string, std::string>> environment;
  std::string folder;  // to run in
  // The task gets the share of the host's cores of number `sharer` of `sharers`; 0 sharers: all.
  int sharer = 0;
  int sharers = 0;
};
std::string ToLine(const RemoteCommand& command);  // without its end
absl::StatusOr<RemoteCommand> RemoteCommandFromLine(std::string_view line);

// The first line of an agent, with the address that the task will listen at.
std::string AgentHello(std::string_view address);
absl::StatusOr<std::string> AddressFromHello(std::string_view line);

// Stands before a line for the launcher. Such lines come only where a line of output may begin.
inline constexpr char kForLauncher = '\1';

// Takes apart what an agent writes to its stdout. Not thread-safe.
class AgentStream {
 public:
  struct Parts {
    std::string output;        // of the task
    std::string for_launcher;  // whole lines
  };
  // The next bytes; lines may come in pieces.
  Parts Take(std::string_view bytes);

 private:
  bool line_begins_ = true;
  bool for_launcher_ = false;  // the line that has begun
  std::string pending_;        // of a line for the launcher
};

inline constexpr std::string_view kAliveLine = "alive";
inline constexpr double kAliveSeconds = 10;  // without a line: the launcher is gone
std::string SignalLine(int number);
int SignalFromLine(std::string_view line);  // 0: it is another one

struct SshOptions {
  std::vector<std::string> ssh = {"ssh"};  // the program and its options
  std::string tutti;                       // on the other hosts
};
// What starts an agent on `host`. `port`: where it must listen; 0: anywhere.
TaskCommand AgentCommand(const SshOptions& options, const std::string& host, int port);

}  // namespace tutti
