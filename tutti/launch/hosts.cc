#include "tutti/launch/hosts.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <fstream>

#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr int kMostSlots = 4096;

absl::StatusOr<int> ParseSlots(std::string_view text, std::string_view whole) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > kMostSlots) {
    return InvalidArgument("\"{}\": \"{}\" is no number of tasks from 1 to {}", whole, text,
                           kMostSlots);
  }
  return slots;
}

// "b", "b:2", "user@[fd77::1]:2".
absl::StatusOr<HostSlots> ParseHost(std::string_view text) {
  HostSlots host;
  const size_t bracket = text.find(']');
  const size_t colon = text.find(':', bracket == text.npos ? 0 : bracket);
  std::string name(text.substr(0, colon));
  if (colon != text.npos) {
    TUTTI_ASSIGN_OR_RETURN(host.slots, ParseSlots(text.substr(colon + 1), text));
  }
  std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
  // What begins with a dash would be an option of ssh.
  if (name.empty() || name[0] == '-' || name.find_first_of(" \t'\"\\") != name.npos) {
    return InvalidArgument("\"{}\" is no host; expected HOST or HOST:TASKS, such as b:2", text);
  }
  host.host = name;
  return host;
}

// A line of a hostfile without its comment and outer spaces.
std::string_view Content(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const size_t begin = line.find_first_not_of(" \t\r");
  if (begin == line.npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

absl::StatusOr<std::vector<HostSlots>> ParseHosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    TUTTI_ASSIGN_OR_RETURN(HostSlots host, ParseHost(text.substr(0, comma)));
    hosts.push_back(std::move(host));
    if (comma == text.npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

absl::StatusOr<std::vector<HostSlots>> ReadHostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return InvalidArgument("cannot read the hostfile {}: {}", path, std::strerror(errno));
  std::vector<HostSlots> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view content = Content(line);
    if (content.empty()) continue;
    const size_t space = content.find_first_of(" \t");
    auto host = ParseHost(content.substr(0, space));
    if (host.ok() && space != content.npos) {
      const std::string_view rest = Content(content.substr(space));
      const auto slots = rest.starts_with("slots=")
                             ? ParseSlots(rest.substr(6), content)
                             : InvalidArgument("\"{}\": expected slots=N behind the host", content);
      if (slots.ok()) {
        host->slots = *slots;
      } else {
        host = slots.status();
      }
    }
    if (!host.ok()) return WithPrefix(host.status(), fmt::format("{}:{}: ", path, number));
    hosts.push_back(*std::move(host));
  }
  if (hosts.empty()) return InvalidArgument("the hostfile {} names no host", path);
  return hosts;
}

int SlotsOf(const std::vector<HostSlots>& hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

absl::StatusOr<std::vector<std::string>> AssignHosts(const std::vector<HostSlots>& hosts,
                                                     int tasks) {
  std::vector<std::string> assigned;
  for (const HostSlots& host : hosts) {
    for (int i = 0; i < host.slots && int(assigned.size()) < tasks; ++i) {
      assigned.push_back(host.host);
    }
  }
  if (int(assigned.size()) < tasks) {
    return InvalidArgument(
        "the job has {} tasks, and the hosts take {}; name more, or b:{} for {} "
        "tasks on host b",
        tasks, SlotsOf(hosts), tasks, tasks);
  }
  return assigned;
}

}  // namespace tutti
