#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Decides whether tasks of a job that were lost are started again, which, and when. Knows nothing
// of processes. Not thread-safe.
//
// A restart may help after exit codes from 128 up (a signal, a lost peer); codes from 1 to 127 come
// from the program and would come again. If other tasks ended because they lost a peer (code 128),
// the strategy needs all tasks, and the whole job is restarted; if the others continue, only the
// lost tasks are. The pause doubles with every restart. A task that ends soon after its start
// several times in a row is in a crash loop, and is given up even if restarts are left.
class RestartPolicy {
 public:
  struct Options {
    int restarts = 0;           // at most so many in the life of the job
    double first_pause = 1;     // seconds; others that lost the task end within it
    double longest_pause = 30;  // seconds
    double short_life = 10;     // seconds: a life of less counts towards a crash loop
    int crashes = 3;            // so many short lives in a row are a crash loop
  };
  explicit RestartPolicy(const Options& options) : options_(options) {}

  static constexpr int kPeerLost = 128;  // the exit code of a task that lost another one

  // A task that ended with a code other than 0.
  struct Loss {
    size_t task = 0;
    int code = 0;
    double lived_seconds = 0;
  };
  struct Decision {
    enum class Kind { kGiveUp, kTasks, kJob };
    Kind kind = Kind::kGiveUp;
    std::vector<size_t> tasks = {};  // with kTasks: those to start again
    // With kGiveUp, why, as the end of a sentence; empty: restarts were not asked for, or the
    // program itself has failed.
    std::string reason = "";
  };

  // Could an end with this code be cured at all, and is there a restart left?
  bool MayCure(int code) const { return code >= kPeerLost && used_ < options_.restarts; }
  // How long to wait after a loss that it may cure: for further losses, and so that whatever ended
  // the task can pass.
  double PauseSeconds() const;
  // What to do about these losses, which came within one pause. `cause` is the first of them that
  // lost nobody else.
  Decision Decide(std::span<const Loss> losses, const Loss& cause);

  int used() const { return used_; }
  int restarts() const { return options_.restarts; }

 private:
  const Options options_;
  int used_ = 0;
  std::map<size_t, int> short_lives_;  // of each task, in a row
};

}  // namespace tutti
