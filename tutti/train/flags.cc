#include "tutti/train/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <system_error>

#include "tutti/base/status.h"
#include "tutti/train/settings_file.h"
#include "tutti/train/spelling.h"

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

// "TUTTI_MAX_STEPS" of "max-steps".
std::string VariableOf(std::string_view flag) {
  std::string name = "TUTTI_";
  for (const char c : flag)
    name += c == '-' ? '_' : char(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// What else the environment may say that begins like a setting.
constexpr std::string_view kOtherVariables[] = {
    "TUTTI_DATA",     "TUTTI_DEVICES",   "TUTTI_HOST",       "TUTTI_JOB_DIR",
    "TUTTI_JOB_PORT", "TUTTI_JOB_TOKEN", "TUTTI_LAUNCH",     "TUTTI_LISTEN_FD",
    "TUTTI_LOG",      "TUTTI_PEERS",     "TUTTI_PROGRESS_FD"};

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
  AddFlag({std::move(name), std::move(help), "TEXT", *value, set, [value] { return *value; }});
}

void Flags::Add(std::string name, std::string* value, std::string help, Accept accept) {
  const auto set = [value, accept = std::move(accept)](std::string_view text) -> std::string {
    std::string expected;
    std::string accepted = accept(text, &expected);
    if (expected.empty()) *value = std::move(accepted);
    return expected;
  };
  AddFlag({std::move(name), std::move(help), "TEXT", *value, set, [value] { return *value; }});
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
  AddFlag({std::move(name), std::move(help), "N", fmt::format("{}", *value), set,
           [value] { return fmt::format("{}", *value); }});
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
  AddFlag({std::move(name), std::move(help), "X", fmt::format("{}", *value), set,
           [value] { return fmt::format("{}", *value); }});
}

void Flags::Add(std::string name, bool* value, std::string help) {
  const auto set = [value](std::string_view text) -> std::string {
    if (text != "" && text != "true" && text != "false") return "true or false";
    *value = text != "false";
    return "";
  };
  AddFlag({std::move(name), std::move(help), "", "", set,
           [value] { return std::string(*value ? "true" : "false"); }, false});
}

void Flags::Append(const Flags& other) {
  for (const Flag& flag : other.flags_) AddFlag(flag);
}

Flags::Flag* Flags::Find(std::string_view name) {
  const auto flag = std::find_if(flags_.begin(), flags_.end(),
                                 [&](const Flag& known) { return name == known.name; });
  return flag == flags_.end() ? nullptr : &*flag;
}

void Flags::TakeFile(const std::string& path, std::string_view program) {
  for (const FileSetting& setting : ReadSettings(path, program)) {
    Flag* const flag = Find(setting.name);
    if (flag == nullptr) {
      ThrowInvalidArgument(
          fmt::format("{}: there is no setting \"{}\"; --help lists them, and what "
                      "is for another program goes under [its name]",
                      setting.where, setting.name));
    }
    if (const std::string expected = flag->set(setting.value); !expected.empty()) {
      ThrowInvalidArgument(fmt::format("{}: {} is \"{}\"; expected {}", setting.where, setting.name,
                                       setting.value, expected));
    }
    flag->source = setting.where;
  }
}

void Flags::TakeEnvironment() {
  std::vector<std::string> variables;
  for (const Flag& flag : flags_) variables.push_back(VariableOf(flag.name));
  // Others begin so too, such as TUTTI_JOB_TOKEN: only what looks like a misspelling is one.
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view set(*entry);
    const std::string_view name = set.substr(0, set.find('='));
    if (!name.starts_with("TUTTI_")) continue;
    const std::string meant = LikelyMeant(name, variables);
    const bool other = std::count(std::begin(kOtherVariables), std::end(kOtherVariables), name) > 0;
    if (meant.empty() || other || std::getenv(meant.c_str()) != nullptr) continue;
    ThrowInvalidArgument(
        fmt::format("the environment has {}, which is no setting; did you mean {}?", name, meant));
  }
  for (Flag& flag : flags_) {
    const std::string variable = VariableOf(flag.name);
    const char* const value = std::getenv(variable.c_str());
    if (value == nullptr) continue;
    if (const std::string expected = flag.set(value); !expected.empty()) {
      ThrowInvalidArgument(fmt::format("{} is \"{}\"; expected {}", variable, value, expected));
    }
    flag.source = variable;
  }
}

bool Flags::ParseWithSettings(int argc, const char* const* argv) {
  has_settings_ = true;
  Add("config", &config_, "FILE with settings (tutti.toml, if there is one)");
  Add("print-config", &print_, "show every setting and where it comes from, and end");
  // The file comes first and the flags last, but a flag names the file.
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--config" && i + 1 < argc) path = argv[i + 1];
    if (argument.starts_with("--config=")) path = argument.substr(argument.find('=') + 1);
  }
  const char* const named = std::getenv("TUTTI_CONFIG");
  if (path.empty() && named != nullptr) path = named;
  if (path.empty() && ::access("tutti.toml", F_OK) == 0) path = "tutti.toml";
  if (!path.empty()) TakeFile(path, FileName(argv[0]));
  TakeEnvironment();
  if (!Parse(argc, argv)) return false;
  if (print_) std::fputs(Settings().c_str(), stdout);
  return !print_;
}

std::string Flags::Settings() const {
  size_t name = 0, value = 0;
  for (const Flag& flag : flags_) {
    name = std::max(name, flag.name.size());
    value = std::max(value, flag.get().size());
  }
  std::string text;
  for (const Flag& flag : flags_) {
    if (flag.name == "print-config") continue;
    text += fmt::format("{:<{}}  {:<{}}  {}\n", flag.name, name, flag.get(), value, flag.source);
  }
  return text;
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
    Flag* const flag = name.starts_with("--") ? Find(name.substr(2)) : nullptr;
    if (flag == nullptr) {
      std::vector<std::string> names;
      for (const Flag& known : flags_) names.push_back("--" + known.name);
      const std::string meant = LikelyMeant(name, names);
      ThrowInvalidArgument(fmt::format("there is no flag {}; {}--help lists them", argument,
                                       meant.empty() ? "" : "did you mean " + meant + "? "));
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
    flag->source = "flag";
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
      "  TF_CONFIG        the cluster and this task's place in it; not set: as mpirun, srun or "
      "torchrun\n"
      "                   say, else alone\n"
      "  TUTTI_JOB_TOKEN  a secret text, the same for all tasks of a job; others are refused.\n"
      "                   Tasks that listen beyond their host do not start without it\n";
  if (has_settings_) {
    text +=
        "  TUTTI_...        any flag: TUTTI_MAX_STEPS for --max-steps; flags beat variables, "
        "which\n"
        "                   beat tutti.toml, whose keys are flags: max-steps = 100\n";
  }
  return text;
}

}  // namespace tutti
