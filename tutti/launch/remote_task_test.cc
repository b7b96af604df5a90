#include "tutti/launch/remote_task.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

// What comes out when `text` comes in pieces of so many bytes.
AgentStream::Parts TakenApart(std::string_view text, size_t piece) {
  AgentStream stream;
  AgentStream::Parts all;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    const AgentStream::Parts parts = stream.Take(text.substr(0, piece));
    all.output += parts.output;
    all.for_launcher += parts.for_launcher;
  }
  return all;
}

TEST(AgentStream, TakesOutputAndLinesForTheLauncherApart) {
  const std::string text = "step 1\n\1bar 1\n\1bar 2\nstep \1 2\n\n\1bar 3\nno end";
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    const AgentStream::Parts parts = TakenApart(text, piece);
    EXPECT_EQ(parts.output, "step 1\nstep \1 2\n\nno end") << piece;
    EXPECT_EQ(parts.for_launcher, "bar 1\nbar 2\nbar 3\n") << piece;
  }
}

TEST(AgentStream, ALineForTheLauncherIsKeptUntilItIsWhole) {
  AgentStream stream;
  EXPECT_EQ(stream.Take("\1half").for_launcher, "");
  EXPECT_EQ(stream.Take(" and half\n").for_launcher, "half and half\n");
}

}  // namespace
}  // namespace tutti
