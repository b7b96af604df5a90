#include "tutti/train/reporting/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

ProgressLine Half() {
  return {
      .done = 50, .total = 100, .per_second = 12.5, .seconds_left = 4, .values = {{"loss", 0.5}}};
}

TEST(RenderProgress, PlainLine) {
  EXPECT_EQ(Render(Half(), {}), "step  50/100  12.5/s  loss 0.5000  0:04 left");
  EXPECT_EQ(Render({.label = "row", .done = 7, .per_second = 0.25}, {}), "row 7  0.25/s");
  ProgressLine line = Half();
  line.seconds_left = 3725;
  line.per_second = 123.4;
  EXPECT_EQ(Render(line, {}), "step  50/100  123/s  loss 0.5000  1:02:05 left");
}

TEST(RenderProgress, TheBarFillsTheRoomThatIsLeft) {
  EXPECT_EQ(Render(Half(), {.width = 60}),
            "step  50/100 [======>     ]  12.5/s  loss 0.5000  0:04 left");
  EXPECT_EQ(Render(Half(), {.width = 50}), Render(Half(), {}));
  EXPECT_EQ(Render(Half(), {.width = 10}), "step  50/");
  for (int width = 1; width < 200; ++width) {
    EXPECT_LT(int(Render(Half(), {.width = width}).size()), std::max(width, 1)) << width;
  }
  ProgressLine whole = Half();
  whole.done = 100;
  EXPECT_THAT(Render(whole, {.width = 60}), HasSubstr("[============]"));
}

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override { unsetenv("NO_COLOR"); }

  // What a Progress of 100 steps, one a second, writes to `out`.
  void Run(std::FILE* out) {
    int64_t now = 0;
    Progress progress({.total = 100, .out = out, .now_nanos = [&now] { return now; }});
    for (int step = 1; step <= 25; ++step) {
      now += 1'000'000'000;
      progress.Update(step, {{"loss", 1.0 / step}});
    }
  }
};

TEST_F(ProgressTest, WritesOnePlainLineAnIntervalElsewhere) {
  std::FILE* file = std::tmpfile();
  Run(file);
  std::rewind(file);
  std::string written(1000, '\0');
  written.resize(std::fread(written.data(), 1, written.size(), file));
  std::fclose(file);
  EXPECT_EQ(written,
            "step  10/100  1.0/s  loss 0.1000  1:30 left\n"
            "step  20/100  1.0/s  loss 0.0500  1:20 left\n"
            "step  25/100  1.0/s  loss 0.0400\n")
      << "what ended has no time left";
}

// A second training goes on from the steps of the first, and has a rate of its own.
TEST_F(ProgressTest, WhatWasDoneBeforeCountsForNoRate) {
  std::FILE* file = std::tmpfile();
  {
    int64_t now = 0;
    Progress progress(
        {.total = 2000, .start = 1000, .out = file, .now_nanos = [&now] { return now; }});
    now += 10'000'000'000;
    progress.Update(1020);
  }
  std::rewind(file);
  std::string written(1000, '\0');
  written.resize(std::fread(written.data(), 1, written.size(), file));
  std::fclose(file);
  EXPECT_EQ(written, "step 1020/2000  2.0/s  8:10 left\n");
}

TEST_F(ProgressTest, AFullDiskEndsNoLoop) {
  std::FILE* const full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  Run(full);
  std::fclose(full);
}

TEST_F(ProgressTest, TellsTheLauncherAndTakesTheBarAwayInTheEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  setenv("TUTTI_PROGRESS_FD", std::to_string(ends[1]).c_str(), 1);
  std::FILE* const out = std::tmpfile();
  {
    int64_t now = 0;
    Progress progress({.total = 3, .out = out, .now_nanos = [&now] { return now; }});
    now += 1'000'000'000;
    progress.Update(1);
    for (const int step : {2, 3}) {
      now += 1'000'000;  // too soon to be told
      progress.Update(step);
    }
  }
  std::fclose(out);
  unsetenv("TUTTI_PROGRESS_FD");
  ::close(ends[1]);
  std::array<char, 1000> bytes;
  const ssize_t got = ::read(ends[0], bytes.data(), bytes.size());
  ::close(ends[0]);
  EXPECT_EQ(std::string(bytes.data(), size_t(std::max<ssize_t>(got, 0))),
            "0.3333\tstep 1/3\t1.0/s\t0:02 left\n\n");
}

TEST_F(ProgressTest, RedrawsOnATerminalAndHonoursNoColor) {
  setenv("TERM", "xterm", 1);
  for (const bool color : {true, false}) {
    if (!color) setenv("NO_COLOR", "1", 1);
    const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal, 0);
    ASSERT_EQ(::grantpt(terminal), 0);
    ASSERT_EQ(::unlockpt(terminal), 0);
    const int slave = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
    ASSERT_GE(slave, 0);
    std::FILE* out = ::fdopen(slave, "w");
    Run(out);
    std::fclose(out);
    // A terminal hands over what was written in pieces, and then an error.
    std::string written;
    std::array<char, 1 << 16> bytes;
    for (ssize_t got = 0; (got = ::read(terminal, bytes.data(), bytes.size())) > 0;) {
      written.append(bytes.data(), size_t(got));
    }
    EXPECT_THAT(written, HasSubstr("\r\033[2Kstep "));
    if (color) {
      EXPECT_THAT(written, HasSubstr("\033[32m"));
    } else {
      EXPECT_THAT(written, Not(HasSubstr("\033[32m")));
    }
    ::close(terminal);
  }
  unsetenv("NO_COLOR");
}

}  // namespace
}  // namespace tutti
