// Tasks on other hosts: an ssh for each, whose agent says where the task will listen before it is
// told what to run. See remote_task.h.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <string_view>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/launch/job.h"
#include "tutti/net/address.h"

extern char** environ;

namespace tutti {
namespace {

constexpr int64_t kHelloNanos = 30'000'000'000;  // for ssh to connect and the agent to answer

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("[::1]");
}

// What the user has set for the tasks; TF_CONFIG and the token are the job's own.
void AppendOwnVariables(std::vector<std::pair<std::string, std::string>>& environment) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("TUTTI_") || equals == text.npos) continue;
    const std::string name(text.substr(0, equals));
    const bool known = std::any_of(environment.begin(), environment.end(),
                                   [&](const auto& one) { return one.first == name; });
    if (!known) environment.emplace_back(name, text.substr(equals + 1));
  }
}

}  // namespace

absl::Status Job::AssignTasks() {
  if (options_.hosts.empty()) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                         AssignHosts(options_.hosts, int(tasks_.size())));
  std::map<std::string, std::string> roles;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i].host = hosts[i];
    std::string& text = roles[hosts[i]];
    text += (text.empty() ? "" : ", ") + tasks_[i].role;
  }
  for (const auto& [host, text] : roles) {
    output_.Say(fmt::format("tutti run: on {}: {}", host, text));
  }
  return absl::OkStatus();
}

absl::Status Job::StartAgent(Task& task, int port) {
  auto process = TaskProcess::Start(AgentCommand(options_.ssh, task.host, port));
  if (!process.ok()) return process.status();
  guard_->Watch(process->pid());
  task.process.reset();
  task.process.emplace(*std::move(process));
  task.agent = {};
  task.started = NowNanos();
  task.waits_for_others = task.has_others = task.ended_well = false;
  return absl::OkStatus();
}

// The address that the agent has opened. What a login shell says before is output like any other.
absl::StatusOr<std::string> Job::WaitForAgent(size_t index) {
  Task& task = tasks_[index];
  TaskProcess& process = *task.process;
  const int64_t deadline = NowNanos() + kHelloNanos;
  std::string pending;
  while (true) {
    for (size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      const auto address = AddressFromHello(pending.substr(0, end));
      if (address.ok()) {
        if (IsLoopback(*address) && options_.hosts.size() > 1) {
          return InvalidArgument(
              "ssh reached {} at {}, which other hosts cannot reach; name it by an address of its "
              "network",
              task.host, *address);
        }
        task.agent_waits = true;
        return address;
      }
      output_.Take(index, JobOutput::Stream::kOut, pending.substr(0, end + 1));
      pending.erase(0, end + 1);
    }
    pollfd fds[] = {{signals_, POLLIN, 0},
                    {process.out(), POLLIN, 0},
                    {process.err(), POLLIN, 0},
                    {process.exited(), POLLIN, 0}};
    const int64_t left = (deadline - NowNanos()) / 1'000'000;
    const int ready = left <= 0 ? 0 : ::poll(fds, std::size(fds), int(left) + 1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return DeadlineExceeded("{} cannot be started: {} has not answered ssh for {} s", task.role,
                              task.host, kHelloNanos / 1'000'000'000);
    }
    if (fds[0].revents != 0) return Cancelled("interrupted while hosts were waited for");
    if (fds[2].revents != 0) TakeOutput(index, process.err());
    if (fds[1].revents != 0) {
      char bytes[4096];
      const ssize_t count = ::read(process.out(), bytes, sizeof(bytes));
      if (count > 0) pending.append(bytes, size_t(count));
      if (count == 0) process.ClosePipe(process.out());
      if (count > 0) continue;
    }
    if (fds[3].revents == 0) continue;
    const int code = process.Reap();
    guard_->Forget(process.pid());
    TakeRest(index, process.err());
    output_.Flush(index);
    return Unavailable(
        "{} cannot be started on {}: ssh exited with code {}; `ssh {} {} --version` must work "
        "without a password",
        task.role, task.host, code, task.host, options_.ssh.tutti);
  }
}

absl::Status Job::StartThere(size_t index) {
  Task& task = tasks_[index];
  if (!task.agent_waits) {
    // Started again: at the address that the others know.
    TUTTI_ASSIGN_OR_RETURN(const net::Endpoint endpoint,
                           net::ParseEndpoint(cluster_.AddressOf(task.id)));
    TUTTI_RETURN_IF_ERROR(StartAgent(task, endpoint.port));
    TUTTI_RETURN_IF_ERROR(WaitForAgent(index).status());
  }
  RemoteCommand command;
  command.arguments = options_.command;
  command.environment = EnvironmentOf(task);
  AppendOwnVariables(command.environment);
  std::error_code error;
  command.folder = std::filesystem::current_path(error);
  const auto trains = [](const Task& one) {
    return one.id.job == "chief" || one.id.job == "worker";
  };
  for (size_t i = 0; i < tasks_.size() && trains(task); ++i) {
    if (tasks_[i].host != task.host || !trains(tasks_[i])) continue;
    ++command.sharers;
    command.sharer += i < index ? 1 : 0;
  }
  task.agent_waits = false;
  if (!task.process->Tell(ToLine(command))) {
    return Unavailable("{} cannot be started on {}: its connection was cut", task.role, task.host);
  }
  return absl::OkStatus();
}

}  // namespace tutti
