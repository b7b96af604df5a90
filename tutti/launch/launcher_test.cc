// Jobs of shell commands. The launcher runs in a process of its own: it takes signals, and becomes
// the parent of whatever its tasks leave behind.
#include "tutti/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

namespace tutti {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr auto kLongest = std::chrono::seconds(60);  // an end that does not come

class LauncherTest : public testing::Test {
 protected:
  LauncherTest() {
    std::string name = testing::TempDir() + "launcher_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~LauncherTest() override {
    if (launcher_ > 0) {
      ::kill(launcher_, SIGKILL);
      ::waitpid(launcher_, nullptr, 0);
    }
    std::filesystem::remove_all(folder_);
  }

  // Tasks run `script` by sh, with $rank and $folder set. What is said goes to `output`, or else to
  // the file "said".
  void Start(int workers, const std::string& script, double grace_seconds = 5,
             const std::string& output = "", double stopped_seconds = 30) {
    LaunchOptions options;
    options.stopped_seconds = stopped_seconds;
    options.workers = workers;
    options.grace_seconds = grace_seconds;
    options.log_dir = Path("logs");
    options.command = {"sh", "-c",
                       fmt::format("folder={}; rank=$(echo \"$TF_CONFIG\" | sed "
                                   "'s/.*\"index\": *\\([0-9]*\\).*/\\1/'); {}",
                                   folder_, script)};
    launcher_ = ::fork();
    if (launcher_ != 0) return;
    const int said = ::open((output.empty() ? Path("said") : output).c_str(),
                            O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(said, STDOUT_FILENO);
    ::dup2(said, STDERR_FILENO);
    if (open_files_ > 0) {
      const rlimit limit = {open_files_, open_files_};
      ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    const int code = Launch(options);
    std::fflush(nullptr);
    ::_exit(code);
  }

  // The exit code of the launcher; -1 if it does not end.
  int Wait() {
    int status = 0;
    if (!Comes([&] { return ::waitpid(launcher_, &status, WNOHANG) == launcher_; })) return -1;
    launcher_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  static bool Comes(const std::function<bool()>& what) {
    const auto end = std::chrono::steady_clock::now() + kLongest;
    while (!what()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static bool Lives(pid_t process) { return process > 0 && ::kill(process, 0) == 0; }

  pid_t launcher_ = -1;
  rlim_t open_files_ = 0;  // that the launcher may have; 0: as many as this process

 private:
  std::string folder_;
};

TEST_F(LauncherTest, AllThatTasksWriteComesOutWithTheirRoles) {
  Start(2, "echo out $rank; echo err $rank >&2; printf unfinished");
  EXPECT_EQ(Wait(), 0);
  for (const char* line : {"worker 0 | out 0\n", "worker 1 | out 1\n", "worker 0 | err 0\n",
                           "worker 1 | err 1\n", "worker 1 | unfinished\n"}) {
    EXPECT_THAT(Read("said"), HasSubstr(line));
  }
  EXPECT_THAT(Read("logs/worker-0.log"), HasSubstr("out 0\n"));
  EXPECT_THAT(Read("logs/worker-1.log"), HasSubstr("err 1\n"));
  EXPECT_THAT(Read("logs/worker-1.log"), Not(HasSubstr("out 0\n")));
}

TEST_F(LauncherTest, AStoppedTaskIsNotWaitedForWhenTheOthersHaveEnded) {
  Start(2, "[ $rank = 1 ] && kill -STOP $$; true", 5, "", 0.1);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: worker 1 (process "));
  EXPECT_THAT(Read("said"), HasSubstr("and nobody else is at work; it is ended\n"));
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: worker 1 was ended by SIGKILL"));
}

TEST_F(LauncherTest, ALimitOfOpenFilesIsNamed) {
  // Enough for ports and the first task, not for the pipes of all.
  open_files_ = 30;
  Start(16, "true");
  EXPECT_EQ(Wait(), 2);
  EXPECT_THAT(Read("said"), HasSubstr("Too many open files (this process may open 30; ulimit -n "
                                      "raises that)\n"));
}

TEST_F(LauncherTest, WhatATaskWroteLastIsNotLost) {
  Start(1, "head -c 60000 /dev/zero | tr '\\0' x; echo; echo the end; exit 4");
  EXPECT_EQ(Wait(), 4);
  EXPECT_THAT(Read("logs/worker-0.log"), HasSubstr("x\nthe end\n"));
}

TEST_F(LauncherTest, OutputThatNobodyTakesEndsNoTask) {
  Start(2, "for i in 1 2 3; do echo line $i; done; touch $folder/done$rank", 5, "/dev/full");
  EXPECT_EQ(Wait(), 1);  // since results are lost
  EXPECT_TRUE(std::filesystem::exists(Path("done0")) && std::filesystem::exists(Path("done1")));
  EXPECT_THAT(Read("logs/worker-1.log"), HasSubstr("line 3\n"));
}

TEST_F(LauncherTest, TellsTheTaskThatFailed) {
  Start(2, "if [ $rank = 1 ]; then echo no luck >&2; exit 3; fi; exit 0");
  EXPECT_EQ(Wait(), 3);
  EXPECT_THAT(Read("said"),
              HasSubstr("tutti run: worker 1 exited with code 3; its last lines:\n  no luck\n"));
}

TEST_F(LauncherTest, TellsTheSignalThatEndedATask) {
  Start(1, "kill -SEGV $$");
  EXPECT_EQ(Wait(), 128 + SIGSEGV);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: worker 0 was ended by SIGSEGV"));
}

// Worker 1 fails only after the launcher has seen the end of worker 0.
TEST_F(LauncherTest, ATaskThatLostAPeerIsNotTheCause) {
  Start(2,
        "if [ $rank = 0 ]; then echo $$ > $folder/p; mv $folder/p $folder/pid; exit 128; fi; "
        "until [ -f $folder/pid ] && ! kill -0 $(cat $folder/pid) 2>/dev/null; do sleep 0.01; "
        "done; exit 3");
  EXPECT_EQ(Wait(), 3);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: worker 1 exited with code 3"));
}

TEST_F(LauncherTest, SignalsGoToAllTasks) {
  Start(2,
        "trap 'echo asked to end; exit 7' TERM; touch $folder/ready$rank; "
        "while :; do sleep 0.05; done");
  ASSERT_TRUE(Comes([&] {
    return std::filesystem::exists(Path("ready0")) && std::filesystem::exists(Path("ready1"));
  }));
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(Wait(), 7);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: interrupted by SIGTERM\n"));
  EXPECT_THAT(Read("said"), Not(HasSubstr("exited with code")));
  EXPECT_THAT(Read("logs/worker-0.log"), HasSubstr("asked to end"));
  EXPECT_THAT(Read("logs/worker-1.log"), HasSubstr("asked to end"));
}

TEST_F(LauncherTest, OthersAreAskedToEndAndThenEndedByForce) {
  Start(2,
        "trap 'echo asked to end' TERM; touch $folder/ready$rank; "
        "until [ -f $folder/ready0 ] && [ -f $folder/ready1 ]; do sleep 0.01; done; "
        "[ $rank = 0 ] && exit 5; while :; do sleep 0.05; done",
        0.1);
  EXPECT_EQ(Wait(), 5);
  EXPECT_THAT(Read("logs/worker-1.log"), HasSubstr("asked to end"));
}

TEST_F(LauncherTest, WhatATaskLeftBehindCannotKeepTheJobAlive) {
  Start(1, "yes & echo $! > $folder/pid; exit 0");
  EXPECT_EQ(Wait(), 0);
  EXPECT_FALSE(Lives(std::stoi(Read("pid"))));
}

TEST_F(LauncherTest, EndsWhatATaskLeftBehindInASessionOfItsOwn) {
  Start(1,
        "setsid sh -c 'echo $$ > $1/p; mv $1/p $1/pid; exec yes' sh $folder & "
        "until [ -f $folder/pid ]; do sleep 0.01; done; exit 6");
  EXPECT_EQ(Wait(), 6);
  EXPECT_FALSE(Lives(std::stoi(Read("pid"))));
}

TEST_F(LauncherTest, TasksDieWithAKilledLauncher) {
  Start(1, "echo $$ > $folder/p; mv $folder/p $folder/pid; exec sleep 1000");
  ASSERT_TRUE(Comes([&] { return std::filesystem::exists(Path("pid")); }));
  const pid_t task = std::stoi(Read("pid"));
  EXPECT_TRUE(Lives(task));
  ::kill(launcher_, SIGKILL);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  // Whoever adopts it may be slow to take note of its end.
  const auto state = [&] {
    std::ifstream file(fmt::format("/proc/{}/stat", task));
    std::string number, name, letter;
    file >> number >> name >> letter;
    return letter;
  };
  EXPECT_TRUE(Comes([&] { return state().empty() || state() == "Z" || state() == "X"; }));
}

TEST_F(LauncherTest, AProgramThatIsNotThereIsAUsageError) {
  LaunchOptions options;
  options.command = {"/nowhere/to/be/found"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(Launch(options), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti run: cannot run /nowhere/to/be/found: No such file or directory\n");
}

}  // namespace
}  // namespace tutti
