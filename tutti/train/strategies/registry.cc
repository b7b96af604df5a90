#include "tutti/train/strategies/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <mutex>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/train/run_config.h"
#include "tutti/train/strategies/catalogue.h"

namespace tutti {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, StrategyDef, std::less<>> defs;  // nodes stay where they are

  Registry() {
    for (StrategyDef& def : BuiltInStrategies()) {
      std::string name = def.name;
      defs.emplace(std::move(name), std::move(def));
    }
  }
};

Registry& Strategies() {
  static Registry registry;
  return registry;
}

// "mirrored:2" as its name and its argument.
std::pair<std::string_view, std::string_view> Split(std::string_view strategy) {
  const size_t colon = strategy.find(':');
  if (colon == strategy.npos) return {strategy, {}};
  return {strategy.substr(0, colon), strategy.substr(colon + 1)};
}

std::string Listed(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> NamesOf(const std::function<bool(const StrategyDef&)>& wanted) {
  std::vector<std::string> names;
  for (const StrategyDef* def : AllStrategies()) {
    if (wanted(*def)) names.push_back(def->name);
  }
  return names;
}

}  // namespace

const std::string& Launch::flag(std::string_view name) const {
  return config.strategy_flags.at(std::string(name));
}

std::string_view Launch::argument() const { return Split(config.strategy).second; }

int64_t WholeNumber(std::string_view text, int64_t least) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && value >= least ? value : -1;
}

void RegisterStrategy(StrategyDef def) {
  if (def.name.empty() || !def.make) {
    ThrowInvalidArgument("RegisterStrategy: expected a name and a function that makes it");
  }
  Registry& strategies = Strategies();
  const std::lock_guard lock(strategies.mutex);
  std::string name = def.name;
  if (!strategies.defs.emplace(name, std::move(def)).second) {
    ThrowInvalidArgument(fmt::format(
        "RegisterStrategy: there is a strategy \"{}\" already; take another name", name));
  }
}

std::vector<const StrategyDef*> AllStrategies() {
  Registry& strategies = Strategies();
  const std::lock_guard lock(strategies.mutex);
  std::vector<const StrategyDef*> all;
  for (const auto& [name, def] : strategies.defs) all.push_back(&def);
  return all;
}

std::string SyntaxOf(const StrategyDef& def) {
  const std::string& syntax = def.argument.syntax;
  if (syntax.empty()) return def.name;
  return syntax.front() == '[' ? fmt::format("{}[:{}", def.name, syntax.substr(1))
                               : fmt::format("{}:{}", def.name, syntax);
}

std::string ExpectedStrategy(std::string_view text) {
  const auto [name, argument] = Split(text);
  for (const StrategyDef* def : AllStrategies()) {
    if (def->name != name) continue;
    if (def->argument.expected) {
      const std::string expected = def->argument.expected(argument);
      return expected.empty() ? "" : fmt::format("{} with {}", SyntaxOf(*def), expected);
    }
    return name == text ? "" : fmt::format("{}, which takes nothing behind its name", def->name);
  }
  std::vector<std::string> all;
  for (const StrategyDef* def : AllStrategies()) all.push_back(SyntaxOf(*def));
  return fmt::format("one of {}", Listed(all));
}

const StrategyDef& FindStrategy(std::string_view text) {
  const std::string_view name = Split(text).first;
  const StrategyDef* found = nullptr;
  for (const StrategyDef* def : AllStrategies()) {
    if (def->name == name) found = def;
  }
  const std::string expected = ExpectedStrategy(text);
  if (found == nullptr) {
    ThrowInvalidArgument(fmt::format("there is no strategy \"{}\"; expected {}", text, expected));
  }
  if (!expected.empty()) {
    ThrowInvalidArgument(fmt::format("the strategy is \"{}\"; expected {}", text, expected));
  }
  return *found;
}

bool Trains(const StrategyDef& def, const TaskConfig& task) {
  return std::find(def.trainers.begin(), def.trainers.end(), task.task.job) != def.trainers.end();
}

bool IsEvaluator(const TaskConfig& task) { return task.task.job == "evaluator"; }

void CheckRole(const StrategyDef& def, const TaskConfig& task) {
  // Each worker would lead a training of its own, and an evaluator wait for one that refuses.
  if (task.sparse) {
    ThrowInvalidArgument(fmt::format(
        "TF_CONFIG has a sparseCluster, as that of a TFJob with enableDynamicWorker, which does "
        "not "
        "name all tasks, but a training needs the addresses of all of them (--strategy {}); set "
        "enableDynamicWorker to false in the TFJob, or leave it out",
        def.name));
  }
  if (!Trains(def, task) && !IsEvaluator(task) && !def.others.contains(task.task.job)) {
    std::vector<std::string> roles = def.trainers;
    for (const auto& [role, work] : def.others) roles.push_back(role);
    roles.push_back("evaluator");
    ThrowInvalidArgument(
        fmt::format("TF_CONFIG: task.type is \"{}\", which --strategy {} has no work for; expected "
                    "one of {}",
                    task.task.job, def.name, Listed(roles)));
  }
  const size_t trainers = task.cluster.Trainers().size();
  if (def.one_trainer && trainers > 1) {
    ThrowInvalidArgument(
        fmt::format("TF_CONFIG has {} tasks that train, but --strategy is {}; use one of {}, or "
                    "unset TF_CONFIG to train alone",
                    trainers, def.name,
                    Listed(NamesOf([](const StrategyDef& other) { return !other.one_trainer; }))));
  }
}

std::string CheckedFlag(const StrategyFlag& flag, std::string_view value, std::string* expected) {
  expected->clear();
  const auto synonym = flag.synonyms.find(std::string(value));
  const std::string chosen = synonym != flag.synonyms.end() ? synonym->second : std::string(value);
  const auto& choices = flag.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), chosen) != choices.end()) {
    return chosen;
  }
  *expected = Listed(choices);
  return "";
}

std::map<std::string, std::string> CompleteFlags(const StrategyDef& def,
                                                 const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> values;
  for (const StrategyFlag& flag : def.flags) {
    const auto found = given.find(flag.name);
    if (found == given.end()) {
      values[flag.name] = flag.initial;
      continue;
    }
    std::string expected;
    values[flag.name] = CheckedFlag(flag, found->second, &expected);
    if (!expected.empty()) {
      ThrowInvalidArgument(fmt::format("strategy {}: flag \"{}\" is \"{}\"; expected one of {}",
                                       def.name, flag.name, found->second, expected));
    }
  }
  for (const auto& [name, value] : given) {
    if (values.contains(name)) continue;
    std::vector<std::string> names;
    for (const StrategyFlag& flag : def.flags) names.push_back(flag.name);
    ThrowInvalidArgument(fmt::format("strategy {} has no flag \"{}\"; it has {}", def.name, name,
                                     names.empty() ? "none" : Listed(names)));
  }
  return values;
}

}  // namespace tutti
