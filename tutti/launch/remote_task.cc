#include "tutti/launch/remote_task.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kHello = "tutti-agent 1 ";
constexpr std::string_view kSignal = "signal ";

// As one word for a shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::string ToLine(const RemoteCommand& command) {
  const Json json = {{"arguments", command.arguments},
                     {"environment", command.environment},
                     {"folder", command.folder},
                     {"sharer", command.sharer},
                     {"sharers", command.sharers}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<RemoteCommand> RemoteCommandFromLine(std::string_view line) {
  try {
    const Json json = Json::parse(line);
    RemoteCommand command;
    command.arguments = json.at("arguments").get<std::vector<std::string>>();
    command.environment =
        json.at("environment").get<std::vector<std::pair<std::string, std::string>>>();
    command.folder = json.at("folder").get<std::string>();
    command.sharer = json.at("sharer").get<int>();
    command.sharers = json.at("sharers").get<int>();
    if (command.arguments.empty() || command.sharer < 0 || command.sharers < 0 ||
        (command.sharers > 0 && command.sharer >= command.sharers)) {
      return InvalidArgument("a command without a program, or with a share of cores that is none");
    }
    return command;
  } catch (const Json::exception& error) {
    return InvalidArgument("no command of a launcher: {}", std::string_view(error.what()));
  }
}

AgentStream::Parts AgentStream::Take(std::string_view bytes) {
  Parts parts;
  while (!bytes.empty()) {
    if (line_begins_) {
      for_launcher_ = bytes.front() == kForLauncher;
      if (for_launcher_) bytes.remove_prefix(1);
      line_begins_ = false;
    }
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end == bytes.npos ? bytes.size() : end + 1);
    line_begins_ = end != bytes.npos;
    bytes.remove_prefix(piece.size());
    std::string& to = for_launcher_ ? pending_ : parts.output;
    to += piece;
    if (for_launcher_ && line_begins_) parts.for_launcher += std::exchange(pending_, {});
  }
  return parts;
}

std::string AgentHello(std::string_view address) { return fmt::format("{}{}", kHello, address); }

absl::StatusOr<std::string> AddressFromHello(std::string_view line) {
  if (!line.starts_with(kHello)) {
    return InvalidArgument("it said \"{}\"; expected \"{}HOST:PORT\"", line.substr(0, 200), kHello);
  }
  return std::string(line.substr(kHello.size()));
}

std::string SignalLine(int number) { return fmt::format("{}{}", kSignal, number); }

int SignalFromLine(std::string_view line) {
  if (!line.starts_with(kSignal)) return 0;
  line.remove_prefix(kSignal.size());
  int number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc() && end == line.data() + line.size() && number > 0 ? number : 0;
}

TaskCommand AgentCommand(const SshOptions& options, const std::string& host, int port) {
  TaskCommand command;
  command.arguments = options.ssh;
  // No questions, which nobody could answer, and an end where the other host is gone.
  for (const char* option :
       {"-T", "-oBatchMode=yes", "-oServerAliveInterval=2", "-oServerAliveCountMax=3"}) {
    command.arguments.emplace_back(option);
  }
  command.arguments.push_back(host);
  command.arguments.push_back(
      fmt::format("exec {} host-agent --port {}", Quoted(options.tutti), port));
  command.control = true;
  return command;
}

}  // namespace tutti
