#include "tutti/launch/wait_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kWarnStopped = 5 * kSecond;  // as often as a collective warns of a late rank
constexpr int64_t kTellRunning =
    10 * kSecond;  // the first time; each later one takes twice as long

int64_t WholeSeconds(int64_t nanos) { return nanos / kSecond; }

}  // namespace

WaitWatch::WaitWatch(std::vector<Task> tasks, double stopped_seconds)
    : tasks_(std::move(tasks)), stopped_seconds_(stopped_seconds), watched_(tasks_.size()) {}

WaitWatch::Finding WaitWatch::Look(std::span<const TaskState> states, int64_t now_nanos) {
  Finding finding;
  LookAtStopped(states, now_nanos, finding);
  LookAtRunning(states, now_nanos, finding);
  return finding;
}

void WaitWatch::LookAtStopped(std::span<const TaskState> states, int64_t now, Finding& finding) {
  const bool others_ended = std::count(states.begin(), states.end(), TaskState::kEnded) > 0;
  const bool any_runs = std::count(states.begin(), states.end(), TaskState::kRunning) > 0;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    Watched& watched = watched_[i];
    if (states[i] != TaskState::kStopped) {
      watched = {};
      continue;
    }
    if (watched.stopped_since == 0) {
      watched.stopped_since = now;
      watched.next_warning = now + kWarnStopped;
    }
    const int64_t stopped = now - watched.stopped_since;
    if (others_ended && !any_runs && !watched.given_up &&
        double(stopped) >= stopped_seconds_ * double(kSecond)) {
      watched.given_up = true;
      finding.given_up.push_back(i);
      finding.lines.push_back(
          fmt::format("{} (process {}) has been stopped for {} s and nobody else is at work; it is "
                      "ended",
                      tasks_[i].role, tasks_[i].process, WholeSeconds(stopped)));
    } else if (!watched.given_up && now >= watched.next_warning) {
      watched.next_warning = now + kWarnStopped;
      finding.lines.push_back(
          fmt::format("{} (process {}) has been stopped for {} s; kill -CONT {} lets it go on",
                      tasks_[i].role, tasks_[i].process, WholeSeconds(stopped), tasks_[i].process));
    }
  }
}

void WaitWatch::LookAtRunning(std::span<const TaskState> states, int64_t now, Finding& finding) {
  if (std::count(states.begin(), states.end(), TaskState::kEnded) == 0) return;
  if (first_end_ == 0) {
    first_end_ = now;
    next_told_ = now + kTellRunning;
  }
  if (now < next_told_) return;
  next_told_ = now + 2 * (now - first_end_);
  std::string ended, running;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (states[i] == TaskState::kStopped) continue;
    std::string& list = states[i] == TaskState::kEnded ? ended : running;
    list += (list.empty() ? "" : ", ") + tasks_[i].role;
  }
  if (running.empty()) return;
  finding.lines.push_back(fmt::format("still running {} s after the first end: {}; ended: {}",
                                      WholeSeconds(now - first_end_), running, ended));
}

}  // namespace tutti
