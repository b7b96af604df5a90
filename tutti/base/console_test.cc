#include "tutti/base/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

#include "tutti/base/status.h"

namespace tutti {
namespace {

// What a child process that does `act` exits with.
int ExitOf(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Console, TellsThatItCouldNotWrite) {
  std::FILE* const full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  EXPECT_FALSE(FormatTo(full, "step {}\n", 1));
  EXPECT_EQ(errno, ENOSPC);
  std::fclose(full);
}

TEST(Console, SurvivesAReaderThatWentAway) {
  EXPECT_EQ(ExitOf([] {
              ::signal(SIGPIPE, SIG_IGN);
              int ends[2];
              if (::pipe(ends) != 0) return 10;
              ::close(ends[0]);
              std::FILE* const out = ::fdopen(ends[1], "w");
              return FormatTo(out, "step {}\n", 1) ? 11 : 0;
            }),
            0);
}

TEST(Console, FindsOutAtTheEndThatResultsWereLost) {
  const auto lose = [](const char* path) {
    return ExitOf([path] {
      ::dup2(::open(path, O_WRONLY), STDOUT_FILENO);
      WriteTo(stdout, "accuracy 91%\n");
      return FinishStdout().ok() ? 0 : 1;
    });
  };
  EXPECT_EQ(lose("/dev/null"), 0);
  EXPECT_EQ(lose("/dev/full"), 1);
}

TEST(Console, KeepsTheNumbersOfClosedStreams) {
  EXPECT_EQ(ExitOf([] {
              ::close(STDOUT_FILENO);
              ::close(STDERR_FILENO);
              KeepStandardFiles();
              const int next = ::open("/dev/null", O_WRONLY);
              // What was closed still cannot be written.
              return next > STDERR_FILENO && ::write(STDERR_FILENO, "x", 1) < 0 ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace tutti
