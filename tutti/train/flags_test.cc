#include "tutti/train/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"

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
  EXPECT_EQ(ErrorOf({"model"}), "there is no flag model; --help lists them");
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

}  // namespace
}  // namespace tutti
