#include "tutti/cluster/environment/hostlist.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kMostDigits = 9;

absl::Status Bad(std::string_view list, std::string_view why) {
  return InvalidArgument("\"{}\" is no list of hosts such as n[01-03,7]: {}", list.substr(0, 200),
                         why);
}

// What stands between brackets: "01-03,7" is 01, 02, 03 and 7. Numbers keep their leading zeros.
absl::StatusOr<std::vector<std::string>> ExpandNumbers(std::string_view list,
                                                       std::string_view numbers) {
  std::vector<std::string> texts;
  while (true) {
    const size_t comma = numbers.find(',');
    const std::string_view range = numbers.substr(0, comma);
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const std::string_view last = dash == range.npos ? first : range.substr(dash + 1);
    uint32_t begin = 0, end = 0;
    for (const auto& [text, value] : {std::pair(first, &begin), {last, &end}}) {
      const char* const stop = text.data() + text.size();
      const auto [rest, error] = std::from_chars(text.data(), stop, *value);
      if (text.empty() || text.size() > kMostDigits || error != std::errc() || rest != stop) {
        return Bad(list, fmt::format("\"{}\" is no number", text.substr(0, 20)));
      }
    }
    if (end < begin) return Bad(list, fmt::format("{} goes down", range));
    if (end - begin >= kMostHosts - texts.size()) return Bad(list, "it names too many");
    for (uint32_t number = begin; number <= end; ++number) {
      texts.push_back(fmt::format("{:0{}}", number, first.size()));
    }
    if (comma == numbers.npos) return texts;
    numbers.remove_prefix(comma + 1);
  }
}

// One name of the list, with any number of brackets.
absl::Status ExpandName(std::string_view list, std::string_view name,
                        std::vector<std::string>& hosts) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    for (std::string& one : names) one += name.substr(0, open);
    if (open == name.npos) break;
    const size_t close = name.find(']', open);
    if (close == name.npos) return Bad(list, "a [ has no ]");
    TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                           ExpandNumbers(list, name.substr(open + 1, close - open - 1)));
    if (names.size() * numbers.size() > kMostHosts) return Bad(list, "it names too many");
    std::vector<std::string> longer;
    for (const std::string& one : names) {
      for (const std::string& number : numbers) longer.push_back(one + number);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  for (std::string& one : names) {
    if (one.empty() || one.find(']') != one.npos) return Bad(list, "a name is missing or has a ]");
    hosts.push_back(std::move(one));
  }
  if (hosts.size() > kMostHosts) return Bad(list, "it names too many");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandHostlist(std::string_view list) {
  std::vector<std::string> hosts;
  size_t begin = 0;
  bool inside = false;  // of brackets, where commas divide numbers
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') inside = true;
    if (i < list.size() && list[i] == ']') inside = false;
    if (i < list.size() && (list[i] != ',' || inside)) continue;
    const std::string_view name = list.substr(begin, i - begin);
    if (name.empty()) return Bad(list, "a name is empty");
    TUTTI_RETURN_IF_ERROR(ExpandName(list, name, hosts));
    begin = i + 1;
  }
  return hosts;
}

}  // namespace tutti
