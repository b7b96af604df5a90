#include "tutti/train/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

#include "tutti/base/status.h"

namespace tutti {
namespace {

template <typename T>
std::errc ParseNumber(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  return rest == end ? error : std::errc::invalid_argument;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  }
  return text;
}

std::string_view FileName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

void Flags::AddFlag(Flag flag) {
  std::erase_if(flags_, [&](const Flag& known) { return known.name == flag.name; });
  flags_.push_back(std::move(flag));
}

void Flags::Add(std::string name, std::string* value, std::string help,
                std::vector<std::string> choices) {
  const auto set = [value, choices](std::string_view text) -> std::string {
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return Joined(choices);
    }
    *value = text;
    return "";
  };
  AddFlag({std::move(name), std::move(help), "TEXT", *value, set});
}

void Flags::Add(std::string name, std::string* value, std::string help, Accept accept) {
  const auto set = [value, accept = std::move(accept)](std::string_view text) -> std::string {
    std::string expected;
    std::string accepted = accept(text, &expected);
    if (expected.empty()) *value = std::move(accepted);
    return expected;
  };
  AddFlag({std::move(name), std::move(help), "TEXT", *value, set});
}

void Flags::Add(std::string name, int64_t* value, std::string help, int64_t least) {
  const auto set = [value, least](std::string_view text) -> std::string {
    int64_t parsed = 0;
    const std::errc error = ParseNumber(text, &parsed);
    if (error == std::errc::result_out_of_range && !text.starts_with('-')) {
      return fmt::format("a whole number of at most {}", std::numeric_limits<int64_t>::max());
    }
    if (error != std::errc() || parsed < least) {
      return fmt::format("a whole number of at least {}", least);
    }
    *value = parsed;
    return "";
  };
  AddFlag({std::move(name), std::move(help), "N", fmt::format("{}", *value), set});
}

void Flags::Add(std::string name, double* value, std::string help, double least) {
  const auto set = [value, least](std::string_view text) -> std::string {
    double parsed = 0;
    if (ParseNumber(text, &parsed) != std::errc() || !std::isfinite(parsed) || parsed < least) {
      return fmt::format("a number of at least {}", least);
    }
    *value = parsed;
    return "";
  };
  AddFlag({std::move(name), std::move(help), "X", fmt::format("{}", *value), set});
}

void Flags::Add(std::string name, bool* value, std::string help) {
  const auto set = [value](std::string_view text) -> std::string {
    if (text != "" && text != "true" && text != "false") return "true or false";
    *value = text != "false";
    return "";
  };
  AddFlag({std::move(name), std::move(help), "", "", set, false});
}

void Flags::Append(const Flags& other) {
  for (const Flag& flag : other.flags_) AddFlag(flag);
}

bool Flags::Parse(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help" || argument == "-h") {
      std::fputs(Help(FileName(argv[0])).c_str(), stdout);
      return false;
    }
    const size_t equals = argument.find('=');
    const std::string_view name = argument.substr(0, equals);
    const auto flag = std::find_if(flags_.begin(), flags_.end(), [&](const Flag& known) {
      return name.starts_with("--") && name.substr(2) == known.name;
    });
    if (flag == flags_.end()) {
      ThrowInvalidArgument(fmt::format("there is no flag {}; --help lists them", argument));
    }
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = argument.substr(equals + 1);
    } else if (flag->needs_value) {
      if (i + 1 == argc) ThrowInvalidArgument(fmt::format("{} needs a value", name));
      value = argv[++i];
    }
    if (const std::string expected = flag->set(value); !expected.empty()) {
      ThrowInvalidArgument(fmt::format("{} is \"{}\"; expected {}", name, value, expected));
    }
  }
  return true;
}

std::string Flags::Help(std::string_view program) const {
  std::string text = fmt::format("{}\n\nusage: {} [flags]\n", summary_, program);
  size_t width = std::string_view("--help").size();
  for (const Flag& flag : flags_) width = std::max(width, flag.name.size() + flag.kind.size() + 3);
  for (const Flag& flag : flags_) {
    const std::string left = fmt::format("--{} {}", flag.name, flag.kind);
    const std::string initial = flag.initial.empty() ? "" : fmt::format(" ({})", flag.initial);
    text += fmt::format("  {:<{}}  {}{}\n", left, width, flag.help, initial);
  }
  text += fmt::format("  {:<{}}  this text\n", "--help", width);
  text +=
      "environment:\n"
      "  TF_CONFIG        the cluster and this task's place in it; not set: alone\n"
      "  TUTTI_JOB_TOKEN  a secret text, the same for all tasks of a job; others are refused\n";
  return text;
}

}  // namespace tutti
