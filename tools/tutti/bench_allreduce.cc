#include "tools/tutti/bench_allreduce.h"

#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/greeting.h"
#include "tutti/collective/reduction_names.h"
#include "tutti/topology/quantity.h"

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

// The processes of a job; ended by force if it goes before they do.
class Ranks {
 public:
  Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    for (const pid_t rank : running_) ::kill(rank, SIGKILL);
    for (const pid_t rank : running_) ::waitpid(rank, nullptr, 0);
  }

  void Add(pid_t rank) {
    all_.push_back(rank);
    running_.insert(rank);
  }
  // Waits for all; the first one of the list that failed, or -1.
  int Wait(const Signals& signals) {
    std::set<pid_t> failed;
    while (true) {
      for (const pid_t rank : std::vector<pid_t>(running_.begin(), running_.end())) {
        int status = 0;
        if (::waitpid(rank, &status, WNOHANG) != rank) continue;
        running_.erase(rank);
        if (status != 0) failed.insert(rank);
      }
      if (running_.empty()) break;
      const std::optional<int> number = signals.Next();
      if (number && *number != SIGCHLD) {
        throw Error(Code::kCancelled, fmt::format("bench allreduce: ended by signal {}", *number));
      }
    }
    const auto first =
        std::find_if(all_.begin(), all_.end(), [&](pid_t rank) { return failed.contains(rank); });
    return first == all_.end() ? -1 : int(first - all_.begin());
  }

 private:
  std::vector<pid_t> all_;
  std::set<pid_t> running_;
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
    if (bench.explain) words.push_back("--explain");
    processes.Add(Spawn(program, std::move(words), signals));
  }
  if (const int failed = processes.Wait(signals); failed >= 0) {
    throw Error(Code::kInternal,
                fmt::format("bench allreduce: rank {} of {} over {} failed; its message is above",
                            failed, ranks, transport));
  }
}

// What every rank would say of the options, said once.
void CheckOptions(const AllReduceBench& bench) {
  const auto check = [](std::string_view option, const absl::Status& status) {
    ThrowIfError(WithPrefix(status, fmt::format("bench allreduce: {}: ", option)));
  };
  for (const int ranks : bench.ranks) {
    if (ranks < 1 || ranks > 4096) {
      check("--ranks", InvalidArgument("{}, expected 1 to 4096", ranks));
    }
  }
  for (const std::string& bytes : bench.bytes) {
    check("--bytes", topology::ParseBytes(bytes).status());
  }
  for (const std::string& transport : bench.transports) {
    if (transport == "auto" || transport == "shm" || transport == "tcp") continue;
    check("--transport", InvalidArgument("\"{}\"; expected auto, shm or tcp", transport));
  }
  if (bench.algorithm != "auto") {
    check("--algorithm", collective::AlgorithmId::FromName(bench.algorithm).status());
  }
  check("--reduction", collective::ReductionFromName(bench.reduction).status());
  check("--wire", collective::WireFromName(bench.wire).status());
}

}  // namespace

void BenchAllReduce(const AllReduceBench& bench, const std::string& program) {
  CheckOptions(bench);
  const Signals signals;  // before the folder: whoever ends this, the folder goes
  const Folder folder;
  int job = 0;
  for (const std::string& transport : bench.transports) {
    for (const int ranks : bench.ranks) {
      RunJob(bench, program, ranks, transport, folder.File(fmt::format("job-{}", job++)), signals);
    }
  }
}

}  // namespace tutti::tools
