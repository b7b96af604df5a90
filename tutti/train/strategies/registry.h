#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/train/strategies/strategy.h"

namespace tutti {

struct RunConfig;
struct TaskConfig;

// A flag of a strategy, whose value is in RunConfig::strategy_flags.
struct StrategyFlag {
  std::string name;     // "wire"
  std::string initial;  // its default
  std::string help;
  std::vector<std::string> choices = {};  // empty: any text
  std::map<std::string, std::string> synonyms =
      {};  // other spellings of choices: {"bf16", "bfloat16"}
};

// What a strategy is made from.
struct Launch {
  const RunConfig& config;
  const TaskConfig* task = nullptr;  // this process in its cluster; null: there is none

  // The value of a flag of the strategy.
  const std::string& flag(std::string_view name) const;
  // The argument after the colon of --strategy: "3" in ps-ssp:3; empty if there is none.
  std::string_view argument() const;
};

// The argument that may follow the name of a strategy and a colon.
struct StrategyArgument {
  std::string syntax = {};  // for --help: "N" makes "mirrored:N", "[backup=K]" "ps-sync[:backup=K]"
  // For an invalid `text` ("" if there is no colon), a description of what was expected; empty if
  // it is valid. Not set: the strategy takes no argument.
  std::function<std::string(std::string_view text)> expected = {};
};

// A strategy as programs and flags know it. A task is a trainer if its role is in `trainers`; it
// makes the strategy and runs the program's body. A task of a role in `others` calls that function
// instead, and ends when it returns. The role evaluator is the same with every strategy: it runs
// the body alone (RunConfig::evaluates). Tasks of all other roles are refused.
struct StrategyDef {
  std::string name;     // as in --strategy
  std::string summary;  // for --help: "one process"
  StrategyArgument argument = {};
  bool one_trainer = false;   // refuse clusters with more
  bool takes_target = false;  // may train on the tasks of a running cluster (RunConfig::target)
  std::vector<std::string> trainers = {"chief", "worker"};
  std::map<std::string, std::function<void(const Launch&)>> others = {};  // by role
  std::vector<StrategyFlag> flags = {};
  // Joins the other tasks and makes it. Throws Error.
  std::function<std::shared_ptr<const Strategy>(const Launch&)> make;
};

// Registers a strategy; call it before Main. The strategies of this folder are always registered
// (catalogue.cc). Throws Error if the name is taken.
void RegisterStrategy(StrategyDef def);

// The strategy of "NAME" or "NAME:ARGUMENT". Throws Error (kInvalidArgument), listing the
// strategies there are, or saying which argument was expected.
const StrategyDef& FindStrategy(std::string_view name);
// For an invalid text, a description of what was expected instead; empty if the text is valid.
std::string ExpectedStrategy(std::string_view text);
// "mirrored:N", as users write it.
std::string SyntaxOf(const StrategyDef& def);
// A whole number of at least `least` and nothing else; -1 if `text` is none.
int64_t WholeNumber(std::string_view text, int64_t least);
std::vector<const StrategyDef*> AllStrategies();  // by name

// Throws Error (kInvalidArgument) when the strategy has no work for the role of the task, the
// cluster has more trainers than it can use, or it is sparse: every strategy needs all addresses.
void CheckRole(const StrategyDef& def, const TaskConfig& task);
bool Trains(const StrategyDef& def, const TaskConfig& task);
// Is it the task that evaluates the checkpoints of a training?
bool IsEvaluator(const TaskConfig& task);

// The values of the strategy's flags: `given`, checked and in their first spelling, and defaults.
// Throws Error (kInvalidArgument) for a flag that the strategy does not have and for a value that
// is none of the choices.
std::map<std::string, std::string> CompleteFlags(const StrategyDef& def,
                                                 const std::map<std::string, std::string>& given);
// Of one flag: the value in its first spelling, or empty and what was expected.
std::string CheckedFlag(const StrategyFlag& flag, std::string_view value, std::string* expected);

}  // namespace tutti
