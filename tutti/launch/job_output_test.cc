#include "tutti/launch/job_output.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace tutti {
namespace {

using Stream = JobOutput::Stream;

// Two streams that are no terminals.
class JobOutputTest : public testing::Test {
 protected:
  ~JobOutputTest() override {
    std::fclose(out_);
    std::fclose(err_);
  }
  static std::string TextOf(std::FILE* file) {
    std::string text;
    std::rewind(file);
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += char(c);
    return text;
  }

  std::FILE* out_ = std::tmpfile();
  std::FILE* err_ = std::tmpfile();
};

TEST_F(JobOutputTest, LinesComeWholeWithTheirRole) {
  JobOutput output({"chief", "worker 10"}, out_, err_);
  output.Take(0, Stream::kOut, "one\ntw");
  output.Take(1, Stream::kOut, "three\n");
  output.Take(0, Stream::kErr, "bad\n");
  output.Take(0, Stream::kOut, "o\n");
  EXPECT_EQ(TextOf(out_), "chief     | one\nworker 10 | three\nchief     | two\n");
  EXPECT_EQ(TextOf(err_), "chief     | bad\n");
}

TEST_F(JobOutputTest, AnUnfinishedLineIsShownAtTheEnd) {
  {
    JobOutput output({"a", "b"}, out_, err_);
    output.Take(0, Stream::kOut, "first");
    output.Take(1, Stream::kErr, "second");
    output.Flush(0);
    EXPECT_EQ(TextOf(out_), "a | first\n");
  }
  EXPECT_EQ(TextOf(err_), "b | second\n");
}

TEST_F(JobOutputTest, KeepsTheLastTwentyLines) {
  JobOutput output({"a"}, out_, err_);
  for (int i = 0; i < 50; ++i) output.Take(0, Stream::kOut, fmt::format("{}\n", i));
  ASSERT_EQ(output.last_lines(0).size(), 20u);
  EXPECT_EQ(output.last_lines(0).front(), "30");
  EXPECT_EQ(output.last_lines(0).back(), "49");
}

TEST_F(JobOutputTest, ALineWithoutEndIsCut) {
  JobOutput output({"a"}, out_, err_);
  output.Take(0, Stream::kOut, std::string(100'000, 'x'));
  EXPECT_EQ(TextOf(out_), "a | " + std::string(100'000, 'x') + "\n");
}

TEST_F(JobOutputTest, ProgressIsForTerminals) {
  JobOutput output({"a"}, out_, err_);
  output.SetProgress("step 1/2");
  output.Say("done");
  EXPECT_EQ(TextOf(err_), "done\n");
}

// What was written to a terminal whose width is 100 columns at first, and 40 then.
TEST(JobOutputOnATerminal, TheBarFitsAndGoes) {
  setenv("TERM", "xterm", 1);
  int master = -1, slave = -1;
  winsize size = {.ws_row = 24, .ws_col = 100, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  std::FILE* const out = ::fdopen(slave, "w");
  const ProgressText text = {
      .front = "step 5/9", .facts = {"36.3/s", "loss 0.2265", "0:32 left"}, .share = 0.5};
  // What was written since the last time, up to `end`: a terminal may hand it over in pieces.
  const auto written_to = [&](const std::string& end) {
    std::string text;
    pollfd readable = {.fd = master, .events = POLLIN, .revents = 0};
    while (!text.ends_with(end) && ::poll(&readable, 1, 10'000) == 1) {
      char bytes[4096];
      const ssize_t count = ::read(master, bytes, sizeof(bytes));
      if (count <= 0) break;
      text.append(bytes, size_t(count));
    }
    return text;
  };
  {
    JobOutput output({"a"}, out, out);
    output.SetProgress(Pack(text));
    EXPECT_EQ(written_to(Fit(text, {.width = 100})), Fit(text, {.width = 100}));
    size.ws_col = 40;
    ASSERT_EQ(::ioctl(slave, TIOCSWINSZ, &size), 0);
    output.SetProgress(Pack(text));
    const std::string narrow = "\rstep 5/9  36.3/s  loss 0.2265";
    EXPECT_THAT(written_to(narrow), testing::EndsWith(narrow));
    output.SetProgress("");
    output.Say("test accuracy 90%");
    const std::string said = "\rtest accuracy 90%\r\n";
    EXPECT_THAT(written_to(said), testing::EndsWith(said));
  }
  std::fclose(out);
  ::close(master);
}

TEST_F(JobOutputTest, WritesAFileForEachTask) {
  const std::string folder = testing::TempDir() + fmt::format("job_output_{}", ::getpid());
  {
    JobOutput output({"chief", "worker 1"}, out_, err_);
    ASSERT_TRUE(output.OpenLogs(folder).ok());
    output.Take(1, Stream::kErr, "bad\nhalf");
  }
  std::ifstream file(folder + "/worker-1.log");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "bad\nhalf\n");
  EXPECT_TRUE(std::filesystem::exists(folder + "/chief.log"));
  std::filesystem::remove_all(folder);
}

TEST_F(JobOutputTest, NamesTheFolderThatCannotBeMade) {
  JobOutput output({"a"}, out_, err_);
  const absl::Status status = output.OpenLogs("/dev/null/logs");
  EXPECT_EQ(std::string(status.message()),
            "cannot make the folder /dev/null/logs: Not a directory");
}

}  // namespace
}  // namespace tutti
