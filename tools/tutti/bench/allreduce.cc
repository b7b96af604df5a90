#include "tools/tutti/bench/allreduce.h"

#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "tools/tutti/bench/allreduce_plan.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"

extern char** environ;

namespace tutti::tools {
namespace {

// A folder of its own for the file in which the ranks find each other; gone at the end.
class Folder {
 public:
  Folder() {
    const char* const where = std::getenv("TMPDIR");
    std::string pattern =
        fmt::format("{}/tutti-bench-XXXXXX", where == nullptr || *where == '\0' ? "/tmp" : where);
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw Error(Code::kUnavailable, fmt::format("bench allreduce: cannot make a folder {}: {}",
                                                  pattern, std::strerror(errno)));
    }
    path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string Join(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ","));
}

// What a parent of ranks waits for: the end of one, or a request to end. Blocked while it lives.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&set_, number);
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
  }
  ~Signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  const sigset_t& before() const { return before_; }
  // The next one; nothing if none comes for a second.
  std::optional<int> Next() const {
    const timespec second = {.tv_sec = 1, .tv_nsec = 0};
    const int number = ::sigtimedwait(&set_, nullptr, &second);
    return number > 0 ? std::optional(number) : std::nullopt;
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

pid_t Spawn(const std::string& program, std::vector<std::string> words, const Signals& signals) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &signals.before());
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, program.c_str(), nullptr, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) {
    throw Error(Code::kInternal, fmt::format("bench allreduce: cannot start {}: {}", program,
                                             std::strerror(failed)));
  }
  return child;
}

using Clock = std::chrono::steady_clock;

// How long the others may take to end by themselves, with a message, when a rank has failed. Ranks
// that wait for one that never joined would wait longer.
constexpr auto kGrace = std::chrono::seconds(3);
// A rank that was stopped (SIGSTOP, or a debugger) for so long ends the job: the others wait for
// it.
constexpr auto kMostStopped = std::chrono::seconds(5);

// The processes of a job; ended by force if it goes before they do.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (const auto& [process, rank] : running_) ::kill(process, SIGKILL);
    for (const auto& [process, rank] : running_) ::waitpid(process, nullptr, 0);
  }

  // The next rank.
  void Add(pid_t process) { running_.emplace(process, Rank{.number = count_++}); }

  // Waits for all. Throws for what keeps them from ending.
  void Wait(const Signals& signals, const std::string& transport) {
    std::optional<Failure> first;
    while (true) {
      for (const pid_t process : Processes()) {
        if (const auto failure = Look(process); failure && !first) first = failure;
      }
      if (running_.empty() || (first && Clock::now() > first->when + kGrace)) break;
      const std::optional<int> number = signals.Next();
      if (number && *number != SIGCHLD) {
        throw Error(Code::kCancelled, fmt::format("bench allreduce: ended by signal {}", *number));
      }
    }
    if (!first) return;
    throw Error(Code::kInternal, fmt::format("bench allreduce: rank {} of {} over {} {}",
                                             first->rank, count_, transport, first->how));
  }

 private:
  struct Rank {
    int number = 0;
    std::optional<Clock::time_point> stopped;  // since when
  };
  struct Failure {
    int rank = 0;
    std::string how;
    Clock::time_point when;
  };

  std::vector<pid_t> Processes() const {
    std::vector<pid_t> processes;
    for (const auto& [process, rank] : running_) processes.push_back(process);
    return processes;
  }

  // What has become of a process; a failure if it ended badly or does not go on.
  std::optional<Failure> Look(pid_t process) {
    Rank& rank = running_.at(process);
    int status = 0;
    while (::waitpid(process, &status, WNOHANG | WUNTRACED | WCONTINUED) == process) {
      if (WIFSTOPPED(status)) {
        rank.stopped = Clock::now();
      } else if (WIFCONTINUED(status)) {
        rank.stopped.reset();
      } else {
        const int number = rank.number;
        running_.erase(process);
        if (status == 0) return std::nullopt;
        return Failure{number,
                       WIFSIGNALED(status)
                           ? fmt::format("was killed by signal {}", WTERMSIG(status))
                           : "failed; its message is above",
                       Clock::now()};
      }
    }
    if (!rank.stopped || Clock::now() < *rank.stopped + kMostStopped) return std::nullopt;
    return Failure{rank.number,
                   fmt::format("(process {}) has been stopped for {} s, and the others wait for it",
                               process, kMostStopped.count()),
                   *rank.stopped};
  }

  std::map<pid_t, Rank> running_;
  int count_ = 0;
};

// Processes that compute without end, beside the ranks and on the same cores; gone with it.
class BusyProcesses {
 public:
  explicit BusyProcesses(int count) {
    const pid_t parent = ::getpid();
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child == 0) Spin(parent);
      if (child < 0) {
        const std::string why = std::strerror(errno);
        End();
        throw Error(Code::kUnavailable,
                    fmt::format("bench allreduce: cannot start a busy process: {}", why));
      }
      children_.push_back(child);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;
  ~BusyProcesses() { End(); }

 private:
  [[noreturn]] static void Spin(pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // it died before the line above
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  void End() {
    for (const pid_t child : children_) ::kill(child, SIGKILL);
    for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
    children_.clear();
  }

  std::vector<pid_t> children_;
};

void RunJob(const AllReduceBench& bench, const std::string& program, int ranks,
            const std::string& transport, const std::string& file, const Signals& signals) {
  Ranks processes;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> words = {"tutti", "bench", "allreduce"};
    const auto add = [&](const std::string& flag, const std::string& value) {
      words.push_back("--" + flag);
      words.push_back(value);
    };
    add("rank", std::to_string(rank));
    add("size", std::to_string(ranks));
    add("parent", std::to_string(::getpid()));
    add("file", file);
    add("transport", transport);
    add("bytes", Join(bench.bytes));
    add("algorithm", bench.algorithm);
    add("memory", bench.memory);
    add("reduction", bench.reduction);
    add("wire", bench.wire);
    add("seconds", fmt::format("{}", bench.seconds));
    if (bench.json) words.push_back("--json");
    if (bench.broadcast) words.push_back("--broadcast");
    if (bench.explain) words.push_back("--explain");
    processes.Add(Spawn(program, std::move(words), signals));
  }
  processes.Wait(signals, transport);
}

}  // namespace

void BenchAllReduce(const AllReduceBench& bench, const std::string& program) {
  const auto check = [](const absl::Status& status) {
    ThrowIfError(WithPrefix(status, "bench allreduce: "));
  };
  check(CheckOptions(bench));
  for (const int ranks : bench.ranks) check(CheckFits(bench, ranks, AvailableMemory()));
  const Signals signals;  // before the folder: whoever ends this, the folder goes
  const Folder folder;
  const BusyProcesses busy(bench.busy);
  int job = 0;
  for (const std::string& transport : bench.transports) {
    for (const int ranks : bench.ranks) {
      RunJob(bench, program, ranks, transport, folder.File(fmt::format("job-{}", job++)), signals);
    }
  }
}

}  // namespace tutti::tools
