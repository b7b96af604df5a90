#include "tools/tutti/bench_allreduce.h"

#include <fmt/format.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tutti/base/error.h"

extern char** environ;

namespace tutti::tools {
namespace {

// A folder of its own for the file in which the ranks find each other; gone at the end.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-bench-XXXXXX").string();
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

pid_t Spawn(const std::string& program, std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed =
      ::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments.data(), environ);
  if (failed != 0) {
    throw Error(Code::kInternal, fmt::format("bench allreduce: cannot start {}: {}", program,
                                             std::strerror(failed)));
  }
  return child;
}

void RunJob(const AllReduceBench& bench, const std::string& program, int ranks,
            const std::string& transport, const std::string& file) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::string> words = {"tutti", "bench", "allreduce"};
    const auto add = [&](const std::string& flag, const std::string& value) {
      words.push_back("--" + flag);
      words.push_back(value);
    };
    add("rank", std::to_string(rank));
    add("size", std::to_string(ranks));
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
    children.push_back(Spawn(program, std::move(words)));
  }
  int failed = -1;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    if (status != 0 && failed < 0) failed = rank;
  }
  if (failed >= 0) {
    throw Error(Code::kInternal,
                fmt::format("bench allreduce: rank {} of {} over {} failed; its message is above",
                            failed, ranks, transport));
  }
}

}  // namespace

void BenchAllReduce(const AllReduceBench& bench, const std::string& program) {
  const Folder folder;
  int job = 0;
  for (const std::string& transport : bench.transports) {
    for (int ranks : bench.ranks) {
      if (ranks < 1 || ranks > 4096) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("bench allreduce: --ranks {}, expected 1 to 4096", ranks));
      }
      RunJob(bench, program, ranks, transport, folder.File(fmt::format("job-{}", job++)));
    }
  }
}

}  // namespace tutti::tools
