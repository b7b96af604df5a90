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
    options.roles = roles_;
    options.roles.workers = workers;
    options.restarts = restarts_;
    options.first_pause_seconds = pause_;
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

  RoleCounts roles_;  // beside the workers
  int restarts_ = 0;
  double pause_ = 0.2;  // seconds before a restart
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
  // Not enough for the ports of all.
  open_files_ = 30;
  Start(16, "true");
  EXPECT_EQ(Wait(), 2);
  EXPECT_THAT(Read("said"), HasSubstr("too many open files"));
  EXPECT_THAT(Read("said"), HasSubstr(" may open 30: raise its limit (ulimit -n)\n"));
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

TEST_F(LauncherTest, EveryRoleHasItsPlaceInTheCluster) {
  roles_ = {.chief = true, .ps = 2, .evaluator = true};
  Start(1, "echo $TF_CONFIG");
  EXPECT_EQ(Wait(), 0);
  const std::string address = "\"127.0.0.1:[0-9]+\"";
  const std::string cluster = "\\{\"cluster\":\\{\"chief\":\\[" + address +
                              "\\],\"evaluator\":\\[" + address + "\\],\"ps\":\\[" + address + "," +
                              address + "\\],\"worker\":\\[" + address + "\\]\\},";
  for (const auto& [log, task] : {std::pair("chief", "chief\",\"index\":0"),
                                  {"worker-0", "worker\",\"index\":0"},
                                  {"ps-0", "ps\",\"index\":0"},
                                  {"ps-1", "ps\",\"index\":1"},
                                  {"evaluator", "evaluator\",\"index\":0"}}) {
    EXPECT_THAT(Read(fmt::format("logs/{}.log", log)),
                testing::MatchesRegex(cluster + "\"task\":\\{\"type\":\"" + task + "\\}\\}\n"));
  }
}

// The inode of a socket in /proc says whether two descriptors are one.
TEST_F(LauncherTest, ATaskIsGivenItsPortAndNobodyElse) {
  Start(2,
        "port=$(echo \"$TF_CONFIG\" | sed 's/.*\"worker\":\\[\"127.0.0.1:\\([0-9]*\\).*/\\1/'); "
        "inode=$(readlink /proc/self/fd/$TUTTI_LISTEN_FD | tr -dc 0-9); "
        "hex=$(printf %04X $port); "
        "grep -q \":$hex 00000000:0000 0A .* $inode \" /proc/net/tcp && echo holds the first; "
        "true");
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Read("logs/worker-0.log"), HasSubstr("holds the first\n"));
  EXPECT_THAT(Read("logs/worker-1.log"), Not(HasSubstr("holds the first")));
}

TEST_F(LauncherTest, ALostTaskIsStartedAgainWhileTheOthersGoOn) {
  restarts_ = 2;
  Start(
      2,
      "echo start; if [ $rank = 0 ]; then until [ -f $folder/again ]; do sleep 0.01; done; exit 0; "
      "fi; [ -f $folder/first ] && { touch $folder/again; exit 0; }; "
      "touch $folder/first; kill -KILL $$");
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: worker 1 was ended by SIGKILL; it is started "
                                      "again in 0.2 s (restart 1 of 2)\n"));
  EXPECT_EQ(Read("logs/worker-0.log"), "start\n");
  EXPECT_EQ(Read("logs/worker-1.log"), "start\nstart\n");
}

// The worker ends when it reads that the launcher goes on.
constexpr const char* kWithEvaluator =
    "case \"$TF_CONFIG\" in *'\"type\":\"evaluator\"'*) kill -KILL $$;; esac; "
    "until grep -q 'go on without it' $folder/said; do sleep 0.01; done; echo done";

TEST_F(LauncherTest, OthersGoOnWithoutTheEvaluator) {
  roles_ = {.evaluator = true};
  Start(1, kWithEvaluator, 0.01);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_EQ(Read("logs/worker-0.log"), "done\n");
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: evaluator was ended by SIGKILL; the others go on "
                                      "without it\n"));
}

TEST_F(LauncherTest, OthersGoOnWithoutAnEvaluatorThatIsInACrashLoop) {
  roles_ = {.evaluator = true};
  restarts_ = 100;
  pause_ = 0.01;
  Start(1, kWithEvaluator, 0.01);
  EXPECT_EQ(Wait(), 128 + SIGKILL);
  EXPECT_EQ(Read("logs/worker-0.log"), "done\n");
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: gave up on evaluator: it has ended within"));
}

TEST_F(LauncherTest, ATaskStartedAgainHasItsOldAddress) {
  restarts_ = 1;
  Start(1,
        "echo $TF_CONFIG; readlink /proc/self/fd/$TUTTI_LISTEN_FD >/dev/null || exit 3; "
        "[ -f $folder/first ] && exit 0; touch $folder/first; kill -KILL $$");
  EXPECT_EQ(Wait(), 0);
  const std::string log = Read("logs/worker-0.log");
  ASSERT_EQ(log.size() % 2, 0u);
  EXPECT_EQ(log.substr(0, log.size() / 2), log.substr(log.size() / 2));
}

// All have looked whether this is the second time before worker 1 dies, and worker 0 notices before
// the pause is over.
TEST_F(LauncherTest, TheWholeJobIsStartedAgainWhereOthersNeedTheLostTask) {
  restarts_ = 3;
  pause_ = 3;
  Start(3,
        "echo start; if [ -f $folder/first ]; then exit 0; fi; touch $folder/ready$rank; "
        "case $rank in 0) until [ -f $folder/first ]; do sleep 0.01; done; exit 128;; "
        "1) until [ -f $folder/ready0 ] && [ -f $folder/ready2 ]; do sleep 0.01; done; "
        "touch $folder/first; kill -KILL $$;; 2) exec sleep 1000;; esac",
        0.1);
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Read("said"),
              HasSubstr("tutti run: the others need it, so the whole job is started again\n"));
  for (const char* log : {"logs/worker-0.log", "logs/worker-1.log", "logs/worker-2.log"}) {
    EXPECT_EQ(Read(log), "start\nstart\n") << log;
  }
}

TEST_F(LauncherTest, ACrashLoopIsGivenUpWithOneCause) {
  restarts_ = 100;
  Start(1, "echo attempt; kill -SEGV $$");
  EXPECT_EQ(Wait(), 128 + SIGSEGV);
  const std::string said = Read("said");
  EXPECT_THAT(said, HasSubstr("(restart 2 of 100)\n"));
  EXPECT_THAT(said, Not(HasSubstr("(restart 4 of 100)")));
  EXPECT_THAT(said, HasSubstr("tutti run: worker 0 was ended by SIGSEGV; its last lines:\n"));
  EXPECT_THAT(said, HasSubstr("tutti run: gave up on worker 0: it has ended within 10 s of its "
                              "start 3 times in a row, so it is not started again\n"));
}

TEST_F(LauncherTest, AnErrorOfTheProgramIsNotRepeated) {
  restarts_ = 5;
  Start(1, "echo attempt; exit 1");
  EXPECT_EQ(Wait(), 1);
  EXPECT_EQ(Read("logs/worker-0.log"), "attempt\n");
}

TEST_F(LauncherTest, ASignalEndsTheWaitForARestart) {
  restarts_ = 1;
  pause_ = 1000;
  Start(2, "[ $rank = 0 ] && exec sleep 1000; kill -KILL $$");
  ASSERT_TRUE(Comes([&] { return Read("said").find("restart 1 of 1") != std::string::npos; }));
  ::kill(launcher_, SIGTERM);
  EXPECT_EQ(Wait(), 128 + SIGTERM);
  EXPECT_THAT(Read("said"), HasSubstr("tutti run: interrupted by SIGTERM\n"));
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
