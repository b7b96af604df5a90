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
