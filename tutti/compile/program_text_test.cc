#include "tutti/compile/program_text.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

std::string Again(std::string_view text) {
  const auto program = ParseProgram(text);
  return program.ok() ? ToText(*program) : std::string(MessageOf(program.status()));
}

TEST(ProgramText, ReadsAndWrites) {
  EXPECT_EQ(Again("fetch y, x  # two of them\n"
                  "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
                  "  target n\n"
                  "feed x\n"
                  "y = MatMul(x, x)\n"
                  "n = NoOp()\n"
                  "feed = NoOp()"),
            "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
            "y = MatMul(x, x)\n"
            "n = NoOp()\n"
            "feed = NoOp()\n"
            "feed x\n"
            "fetch y\n"
            "fetch x\n"
            "target n\n");
}

TEST(ProgramText, ReadsAndWritesTheMemoryTable) {
  const std::string text =
      "x = Placeholder() {dtype=float32, shape=[8]}\n"
      "pin = Neg(x)\n"
      "feed x\n"
      "fetch pin\n"
      "layout x A8a\n"
      "arena a\n"
      "arena b registered\n"
      "pin x a 0\n"
      "pin pin b 64\n"
      "joined pin\n";
  EXPECT_EQ(Again(text), text);
  EXPECT_EQ(Again("layout y A8a"), "line 1: there is no output \"y\"");
  EXPECT_EQ(Again("joined y"), "line 1: there is no node \"y\"");
  EXPECT_EQ(Again("arena"), "line 1: \"arena\" has 1 words; expected 3");
  const std::string x = "x = Placeholder() {dtype=float32, shape=[8]}\narena a\n";
  EXPECT_EQ(Again(x + "pin x b 0"), "line 3: there is no arena \"b\"");
  EXPECT_EQ(Again(x + "pin x a"), "line 3: \"pin\" has 3 words; expected 4");
  for (const char* offset : {"-1", "1x", "99999999999999999999"}) {
    EXPECT_EQ(Again(x + "pin x a " + offset),
              std::string("line 3: the offset is \"") + offset + "\"; expected a number of bytes");
  }
}

TEST(ProgramText, ErrorsNameTheLine) {
  EXPECT_EQ(Again("n = NoOp()\nfetch n"), "line 2: there is no output \"n\"");
  EXPECT_EQ(Again("target m\n"), "line 1: there is no node \"m\"");
  EXPECT_EQ(Again("c = Constant() {value=int8 [] {1}}\nfeed c"),
            "line 2: a feed is a Placeholder, \"c\" is a Constant");
  EXPECT_EQ(Again("fetch n\nn = Nope()"), "line 2, column 5: there is no op \"Nope\"");
  EXPECT_EQ(Again("fetch"), "line 1: there is no output \"\"");
}

}  // namespace
}  // namespace tutti
