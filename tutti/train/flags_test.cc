#include "tutti/train/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tutti/base/error.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

struct Values {
  std::string model = "cnn";
  int64_t steps = 10;
  double rate = 0.5;
  bool fast = false;
};

bool Parse(Values& values, std::vector<const char*> arguments) {
  Flags flags("Does things.");
  flags.Add("model", &values.model, "which model", {"cnn", "mlp"});
  flags.Add("steps", &values.steps, "how many", 1);
  flags.Add("rate", &values.rate, "how fast", 0.0);
  flags.Add("fast", &values.fast, "faster");
  arguments.insert(arguments.begin(), "bin/program");
  return flags.Parse(int(arguments.size()), arguments.data());
}

std::string ErrorOf(std::vector<const char*> arguments) {
  Values values;
  try {
    Parse(values, std::move(arguments));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Flags, TakesValuesInBothForms) {
  Values values;
  EXPECT_TRUE(Parse(values, {"--model", "mlp", "--steps=3", "--rate", "1e-3", "--fast"}));
  EXPECT_EQ(values.model, "mlp");
  EXPECT_EQ(values.steps, 3);
  EXPECT_EQ(values.rate, 1e-3);
  EXPECT_TRUE(values.fast);
}

TEST(Flags, MistakesNameFlagFoundAndExpected) {
  EXPECT_EQ(ErrorOf({"--model", "rnn"}), "--model is \"rnn\"; expected cnn or mlp");
  EXPECT_EQ(ErrorOf({"--steps", "0"}), "--steps is \"0\"; expected a whole number of at least 1");
  EXPECT_EQ(ErrorOf({"--steps", "9223372036854775808"}),
            "--steps is \"9223372036854775808\"; expected a whole number of at most "
            "9223372036854775807");
  EXPECT_EQ(ErrorOf({"--steps", "3x"}), "--steps is \"3x\"; expected a whole number of at least 1");
  EXPECT_EQ(ErrorOf({"--rate", "nan"}), "--rate is \"nan\"; expected a number of at least 0");
  EXPECT_EQ(ErrorOf({"--rate"}), "--rate needs a value");
  EXPECT_EQ(ErrorOf({"--speed", "1"}), "there is no flag --speed; --help lists them");
  EXPECT_EQ(ErrorOf({"--step", "1"}),
            "there is no flag --step; did you mean --steps? --help lists them");
  EXPECT_EQ(ErrorOf({"model"}), "there is no flag model; did you mean --model? --help lists them");
  EXPECT_EQ(ErrorOf({"--fast=maybe"}), "--fast is \"maybe\"; expected true or false");
}

TEST(Flags, HelpListsAll) {
  Values values;
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(Parse(values, {"--help"}));
  const std::string help = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(help, HasSubstr("Does things.\n\nusage: program [flags]\n"));
  EXPECT_THAT(help, HasSubstr("--steps N     how many (10)\n"));
}

// Settings from a file, the environment and flags.
class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    flags.Add("max-steps", &steps, "updates", 1);
    flags.Add("learning-rate", &rate, "at the start", 0.0);
    flags.Add("model-dir", &dir, "where");
    flags.Add("quiet", &quiet, "say nothing");
  }
  ~SettingsTest() override {
    for (const char* name : {"TUTTI_MAX_STEPS", "TUTTI_QUIET", "TUTTI_CONFIG"}) ::unsetenv(name);
  }
  void Write(const std::string& text) { std::ofstream(path) << text; }
  bool Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "bin/program");
    return flags.ParseWithSettings(int(arguments.size()), arguments.data());
  }
  std::string ErrorOf(std::vector<const char*> arguments) {
    try {
      Parse(std::move(arguments));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const tutti::testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/settings_test.toml";
  const std::string config = "--config=" + path;
  int64_t steps = 10;
  double rate = 0.5;
  std::string dir = "here";
  bool quiet = false;
  Flags flags{"A test."};
};

TEST_F(SettingsTest, FlagsBeatVariablesBeatTheFile) {
  Write(
      "max_steps = 20\nlearning-rate = 0.25\nmodel-dir = \"a\"\n[program]\nmodel-dir = \"b\"\n"
      "[other]\nblocks = 3\n");
  ::setenv("TUTTI_MAX_STEPS", "30", 1);
  ::setenv("TUTTI_QUIET", "true", 1);
  ASSERT_TRUE(Parse({config.c_str()}));
  EXPECT_EQ(steps, 30);
  EXPECT_EQ(rate, 0.25);
  EXPECT_EQ(dir, "b");
  EXPECT_TRUE(quiet);
  ASSERT_TRUE(Parse({config.c_str(), "--max-steps", "40", "--quiet=false"}));
  EXPECT_EQ(steps, 40);
  EXPECT_FALSE(quiet);
}

TEST_F(SettingsTest, DeepNestingIsRefused) {
  std::string deep = "a";
  for (int i = 0; i < 50'000; ++i) deep += ".a";
  Write("max_steps = 20\n" + deep + " = 1\n");
  EXPECT_THAT(ErrorOf({config.c_str()}), ::testing::EndsWith(".toml:2: nested deeper than 32"));
}

TEST_F(SettingsTest, PrintsWhereEveryValueCameFrom) {
  Write("learning-rate = 0.25\n");
  ::setenv("TUTTI_MAX_STEPS", "30", 1);
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(Parse({config.c_str(), "--quiet", "--print-config"}));
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, ::testing::ContainsRegex("max-steps +30 +TUTTI_MAX_STEPS\n"));
  EXPECT_THAT(printed,
              ::testing::ContainsRegex("learning-rate +0.25 +[^ ]*settings_test.toml:1\n"));
  EXPECT_THAT(printed, ::testing::ContainsRegex("model-dir +here +default\n"));
  EXPECT_THAT(printed, ::testing::ContainsRegex("quiet +true +flag\n"));
}

TEST_F(SettingsTest, NamesTheSourceOfAMistake) {
  ::setenv("TUTTI_MAX_STEPS", "many", 1);
  EXPECT_EQ(ErrorOf({}), "TUTTI_MAX_STEPS is \"many\"; expected a whole number of at least 1");
  ::unsetenv("TUTTI_MAX_STEPS");
  Write("\nmax-steps = 0\n");
  EXPECT_EQ(ErrorOf({config.c_str()}),
            path + ":2: max-steps is \"0\"; expected a whole number of at least 1");
  Write("max-step = 5\n");
  EXPECT_THAT(ErrorOf({config.c_str()}),
              HasSubstr(":1: there is no setting \"max-step\"; --help lists them, and what is for "
                        "another program goes under [its name]"));
  Write("max-steps = \n");
  EXPECT_THAT(ErrorOf({config.c_str()}), HasSubstr("settings_test.toml:1: "));
  Write("max-steps = 1979-05-27\n");
  EXPECT_THAT(ErrorOf({config.c_str()}), HasSubstr("expected a string, a number"));
  EXPECT_THAT(ErrorOf({"--config", "/no/such.toml"}),
              HasSubstr("cannot open /no/such.toml: No such file"));
}

TEST_F(SettingsTest, AMisspeltVariableIsAMistake) {
  ::setenv("TUTTI_MAX_STEP", "5", 1);
  EXPECT_EQ(ErrorOf({}),
            "the environment has TUTTI_MAX_STEP, which is no setting; did you mean "
            "TUTTI_MAX_STEPS?");
  ::unsetenv("TUTTI_MAX_STEP");
  ::setenv("TUTTI_SOMETHING_ELSE", "5", 1);
  EXPECT_EQ(ErrorOf({}), "no error");
  ::unsetenv("TUTTI_SOMETHING_ELSE");
}

TEST_F(SettingsTest, AVariableNamesTheFile) {
  Write("max-steps = 77\n");
  ::setenv("TUTTI_CONFIG", path.c_str(), 1);
  ASSERT_TRUE(Parse({}));
  EXPECT_EQ(steps, 77);
}

}  // namespace
}  // namespace tutti
