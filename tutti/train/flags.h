#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The flags of a program: --name value or --name=value. Every one has a variable that holds its
// value, which before Parse is its default.
//
//   std::string model = "cnn";
//   Flags flags("Trains a small network on Fashion-MNIST.");
//   flags.Add("model", &model, "cnn or mlp", {"cnn", "mlp"});
//   if (!flags.Parse(argc, argv)) return 0;  // --help was shown
class Flags {
 public:
  explicit Flags(std::string summary) : summary_(std::move(summary)) {}

  // `help` is one line; the default is added to it. With `choices` nothing else is accepted.
  void Add(std::string name, std::string* value, std::string help,
           std::vector<std::string> choices = {});
  // With `accept` for what a value may be: it gives the value as it is to be kept, or sets
  // `expected` to what should have been given.
  using Accept = std::function<std::string(std::string_view text, std::string* expected)>;
  void Add(std::string name, std::string* value, std::string help, Accept accept);
  // At least `least`.
  void Add(std::string name, int64_t* value, std::string help, int64_t least);
  void Add(std::string name, double* value, std::string help, double least);
  void Add(std::string name, bool* value, std::string help);  // alone means true

  // Takes the flags of `other`, too; they are listed behind these.
  void Append(const Flags& other);

  // Throws Error (kInvalidArgument) that names the flag, what was given and what was expected.
  // False when --help or --print-config was asked for; it has been printed to stdout then.
  bool Parse(int argc, const char* const* argv);

  // The same, with values from a file and the environment first: flags beat variables, which beat
  // the file. The flag --max-steps is the variable TUTTI_MAX_STEPS and the key max-steps. The file
  // is that of --config or TUTTI_CONFIG, else tutti.toml of the current directory if there is one
  // (settings_file.h tells what it may hold); its keys must be flags.
  bool ParseWithSettings(int argc, const char* const* argv);

  std::string Help(std::string_view program) const;

  // Every flag with its value and where that came from, a line each: what --print-config shows.
  //   max-steps      2000   flag
  //   batch-size     128    tutti.toml:2
  //   seed           7      TUTTI_SEED
  //   learning-rate  0.001  default
  std::string Settings() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    std::string kind;  // how the value is called in the help: N, X, TEXT
    std::string initial;
    // Sets the variable; what was expected, or "" if the text was fine.
    std::function<std::string(std::string_view)> set;
    std::function<std::string()> get = {};  // its value as text
    bool needs_value = true;
    std::string source = "default";
  };
  void AddFlag(Flag flag);
  Flag* Find(std::string_view name);
  void TakeFile(const std::string& path, std::string_view program);
  void TakeEnvironment();

  std::string summary_;
  std::vector<Flag> flags_;
  // What ParseWithSettings adds: --config and --print-config.
  bool has_settings_ = false;
  std::string config_;
  bool print_ = false;
};

}  // namespace tutti
