// One loop over all events: output of a task, the end of a task, a signal to this process, a
// deadline. If the policy allows, a lost task is restarted after a pause, alone or together with
// all others once they have ended. Otherwise the first failed task is the cause of the job's end;
// the other tasks notice the failure and exit by themselves, and those that do not within the grace
// period are killed. The job does not depend on the evaluator: if it is lost the job goes on, and
// its loss is reported again at the end and determines the exit code.
#include "tutti/launch/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "tutti/base/clock.h"
#include "tutti/base/progress_text.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr int kPeerLost = RestartPolicy::kPeerLost;
constexpr int kSshFailed = 255;  // what ssh exits with when it fails itself
constexpr int64_t kSecond = 1'000'000'000;
constexpr double kTerminateSeconds = 2;  // between SIGTERM and SIGKILL
constexpr int64_t kLookEvery = kSecond;  // at tasks that are waited for
constexpr int kPiece = 16 << 10;         // bytes of output taken at once

std::vector<std::string> RolesOf(const RoleCounts& counts) {
  std::vector<std::string> roles;
  for (const TaskId& task : TasksOf(counts)) roles.push_back(RoleName(task));
  return roles;
}

double SecondsSince(int64_t nanos) { return double(NowNanos() - nanos) / double(kSecond); }

}  // namespace

std::string SignalName(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

Job::Job(const LaunchOptions& options)
    : options_(options),
      output_(RolesOf(options.roles), stdout, stderr),
      policy_({.restarts = options.restarts, .first_pause = options.first_pause_seconds}) {
  for (const TaskId& id : TasksOf(options.roles)) {
    tasks_.emplace_back();
    tasks_.back().id = id;
    tasks_.back().role = RoleName(id);
  }
}

int Job::Run() {
  while (AnyRuns() || mend_at_ != 0) {
    PollOnce();
    EndByForce();
    Mend();
    LookAtTasks();
  }
  for (size_t i = 0; i < tasks_.size(); ++i) output_.Flush(i);
  if (!cause_) cause_ = lost_evaluator_;
  if (signal_ != 0 && cause_) {
    output_.Say(fmt::format("tutti run: interrupted by {}", SignalName(signal_)));
  } else if (cause_) {
    TellCause();
  }
  return cause_ ? cause_->loss.code : 0;
}

bool Job::AnyRuns() const {
  return std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.runs(); });
}

void Job::PollOnce() {
  struct Source {
    size_t task;
    int fd;
  };
  std::vector<pollfd> fds = {{.fd = signals_, .events = POLLIN, .revents = 0}};
  std::vector<Source> sources = {{0, signals_}};
  for (size_t i = 0; i < tasks_.size(); ++i) {
    if (!tasks_[i].process) continue;
    const TaskProcess& process = *tasks_[i].process;
    for (const int fd : {process.out(), process.err(), process.progress()}) {
      if (fd < 0) continue;
      fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
      sources.push_back({i, fd});
    }
    if (!process.reaped()) {
      fds.push_back({.fd = process.exited(), .events = POLLIN, .revents = 0});
      sources.push_back({i, process.exited()});
    }
  }
  if (::poll(fds.data(), nfds_t(fds.size()), Timeout()) <= 0) return;
  if (fds[0].revents != 0) TakeSignal();
  for (size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    if (sources[i].fd == tasks_[sources[i].task].process->exited()) {
      TakeEnd(sources[i].task);
    } else {
      TakeOutput(sources[i].task, sources[i].fd);
    }
  }
  LookForMissing();
}

int Job::Timeout() const {
  int64_t next = next_look_;
  for (const int64_t other : {deadline_, mend_at_}) {
    if (other != 0) next = std::min(next, other);
  }
  return int(std::max<int64_t>(0, (next - NowNanos()) / 1'000'000) + 1);
}

void Job::TakeOutput(size_t index, int fd) {
  TaskProcess& process = *tasks_[index].process;
  char bytes[kPiece];
  const ssize_t count = ::read(fd, bytes, sizeof(bytes));
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) {
    process.ClosePipe(fd);
  } else if (count > 0 && fd == process.progress()) {
    TakeProgress(tasks_[index], {bytes, size_t(count)});
  } else if (count > 0 && fd == process.out() && !tasks_[index].host.empty()) {
    const AgentStream::Parts parts = tasks_[index].agent.Take({bytes, size_t(count)});
    TakeProgress(tasks_[index], parts.for_launcher);
    output_.Take(index, JobOutput::Stream::kOut, parts.output);
  } else if (count > 0) {
    output_.Take(index, fd == process.out() ? JobOutput::Stream::kOut : JobOutput::Stream::kErr,
                 {bytes, size_t(count)});
  }
}

// Whole lines, which are written at once.
void Job::TakeProgress(Task& task, std::string_view text) {
  std::optional<std::string_view> shown;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == kWaitsForOthers) {
      task.waits_for_others = true;
    } else if (line == kSurvivesLosses) {
      survives_losses_ = true;
    } else if (line == kHasOthers) {
      task.waits_for_others = false;
      task.has_others = true;
    } else {
      shown = line;
    }
  }
  if (shown) output_.SetProgress(*shown);
}

// A task that trains, ended well and never met the others keeps those waiting that wait for all.
void Job::LookForMissing() {
  if (final_ || mend_at_ != 0) return;
  const bool waited_for = std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) {
    return task.runs() && task.waits_for_others;
  });
  if (!waited_for) return;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const Task& task = tasks_[i];
    const bool trains = task.id.job == "worker" || task.id.job == "chief";
    if (!trains || !task.ended_well || task.has_others) continue;
    const auto& lines = output_.last_lines(i);
    cause_ = Cause{.loss = {i, 1, SecondsSince(task.started)},
                   .last_lines = {lines.begin(), lines.end()},
                   .never_came = true};
    EndFinally();
    StartDeadline(0);  // those that wait cannot know
    return;
  }
}

void Job::TakeEnd(size_t index) {
  TaskProcess& process = *tasks_[index].process;
  const int code = process.Reap();
  guard_->Forget(process.pid());
  for (const int fd : {process.out(), process.err(), process.progress()}) TakeRest(index, fd);
  output_.Flush(index);
  tasks_[index].ended_well = code == 0;
  if (code != 0) {
    TakeLoss(index, code);
  } else if (survives_losses_ && tasks_[index].id == cluster_.Chief()) {
    TakeEndOfTraining();
  }
}

// A job that survives losses is done when the first task that trains is. A worker that was to be
// started again, or still looks for the others, comes too late.
void Job::TakeEndOfTraining() {
  trained_ = true;
  if (final_) return;
  std::erase_if(losses_, [this](const auto& loss) { return MayBeLeftOut(tasks_[loss.task]); });
  if (losses_.empty()) {
    cause_.reset();
    mend_at_ = 0;
  }
  StartDeadline(options_.grace_seconds);
}

void Job::GoOnWithout() {
  output_.Say(fmt::format("tutti run: {} {}{}; the others go on without it",
                          tasks_[cause_->loss.task].role, HowItEnded(*cause_),
                          gave_up_.empty() ? "" : fmt::format(", and {}", gave_up_)));
  gave_up_.clear();
  losses_.clear();
  cause_.reset();
  mend_at_ = 0;
}

// Others that train go on without it, and only they need it.
bool Job::MayBeLeftOut(const Task& task) const {
  return survives_losses_ && task.id.job == "worker" && !(task.id == cluster_.Chief());
}

// What a task that ended left in a pipe: no more than is there at this moment, for what it started
// may live outside its process group and write on.
void Job::TakeRest(size_t index, int fd) {
  int bytes = 0;
  if (fd < 0 || ::ioctl(fd, FIONREAD, &bytes) != 0) return;
  for (int taken = 0; taken < bytes; taken += kPiece) TakeOutput(index, fd);
}

void Job::TakeLoss(size_t index, int code) {
  const Task& task = tasks_[index];
  const RestartPolicy::Loss loss = {index, code, SecondsSince(task.started)};
  if (trained_ && MayBeLeftOut(task)) return;
  if (IsEvaluator(index) && !policy_.MayCure(code) && !final_ && !mend_all_) {
    return GoOnWithoutEvaluator(CauseOf(loss), "");
  }
  // A task that only lost a peer is not the cause, though its end may be seen first.
  if (!cause_ || (cause_->loss.code == kPeerLost && code != kPeerLost && !terminated_)) {
    cause_ = CauseOf(loss);
  }
  if (!mend_all_) losses_.push_back(loss);
  if (final_ || mend_all_) return;
  if (!policy_.MayCure(code) && code > kPeerLost && MayBeLeftOut(task) && mend_at_ == 0) {
    GoOnWithout();
  } else if (!policy_.MayCure(code)) {
    gave_up_ = policy_.Decide(losses_, cause_->loss).reason;
    EndFinally();
  } else if (mend_at_ == 0) {
    const double pause = policy_.PauseSeconds();
    mend_at_ = NowNanos() + int64_t(pause * double(kSecond));
    output_.Say(fmt::format("tutti run: {} {}; it is started again in {:g} s (restart {} of {})",
                            task.role, HowItEnded(*cause_), pause, policy_.used() + 1,
                            policy_.restarts()));
  }
}

Job::Cause Job::CauseOf(const RestartPolicy::Loss& loss) const {
  const auto& lines = output_.last_lines(loss.task);
  return {loss, tasks_[loss.task].process->signal(), {lines.begin(), lines.end()}};
}

void Job::GoOnWithoutEvaluator(const Cause& cause, const std::string& reason) {
  lost_evaluator_ = cause;
  gave_up_ = reason;
  output_.Say(
      fmt::format("tutti run: evaluator {}; the others go on without it", HowItEnded(cause)));
}

// At the end of a pause, and with all tasks once the last has ended.
void Job::Mend() {
  if (mend_at_ == 0 || NowNanos() < mend_at_ || final_) return;
  std::vector<size_t> tasks;
  if (!mend_all_) {
    RestartPolicy::Decision decision = policy_.Decide(losses_, cause_->loss);
    // What a ps held is gone, and a first worker gives all others their values: only a whole job
    // that is started again has one state.
    const bool needed = std::any_of(losses_.begin(), losses_.end(), [this](const auto& loss) {
      return !MayBeLeftOut(tasks_[loss.task]) && !IsEvaluator(loss.task);
    });
    if (decision.kind == RestartPolicy::Decision::Kind::kTasks && survives_losses_ && needed) {
      decision.kind = RestartPolicy::Decision::Kind::kJob;
    }
    if (decision.kind == RestartPolicy::Decision::Kind::kGiveUp &&
        std::all_of(losses_.begin(), losses_.end(),
                    [this](const RestartPolicy::Loss& loss) { return IsEvaluator(loss.task); })) {
      const Cause cause = *cause_;
      losses_.clear();
      cause_.reset();
      mend_at_ = 0;
      return GoOnWithoutEvaluator(cause, decision.reason);
    }
    if (decision.kind == RestartPolicy::Decision::Kind::kGiveUp) {
      gave_up_ = decision.reason;
      return needed ? EndFinally() : GoOnWithout();
    }
    tasks = decision.tasks;
    if (decision.kind == RestartPolicy::Decision::Kind::kJob) {
      mend_all_ = true;
      output_.Say("tutti run: the others need it, so the whole job is started again");
      if (AnyRuns()) StartDeadline(options_.grace_seconds);
    }
  }
  if (mend_all_ && AnyRuns()) return;
  const absl::Status started = mend_all_ ? StartAll() : StartAgain(tasks);
  if (!started.ok()) {
    gave_up_ = fmt::format("it cannot be started: {}", MessageOf(started));
    return EndFinally();
  }
  losses_.clear();
  cause_.reset();
  if (mend_all_) lost_evaluator_.reset();
  mend_at_ = deadline_ = 0;
  mend_all_ = terminated_ = false;
}

void Job::EndFinally() {
  final_ = true;
  mend_at_ = 0;
  mend_all_ = false;
  StartDeadline(options_.grace_seconds);
}

void Job::TakeSignal() {
  signalfd_siginfo info;
  if (::read(signals_, &info, sizeof(info)) != ssize_t(sizeof(info))) return;
  const int number = int(info.ssi_signo);
  if (!final_) {
    signal_ = number;
    // What was to be mended is not the cause of this end.
    cause_.reset();
    if (mend_at_ != 0) cause_ = Cause{{0, 128 + number, 0}, number};
  }
  for (const Task& task : tasks_) {
    if (task.process) task.process->Signal(number);
  }
  const int64_t deadline = deadline_;
  EndFinally();
  if (deadline != 0) deadline_ = deadline;
}

void Job::StartDeadline(double seconds) {
  deadline_ = NowNanos() + int64_t(seconds * double(kSecond));
}

void Job::EndByForce() {
  if (deadline_ == 0 || NowNanos() < deadline_) return;
  for (const Task& task : tasks_) {
    // After a good end the evaluator may take its time for the last checkpoint.
    if (trained_ && !final_ && task.id.job == "evaluator") continue;
    if (task.process) task.process->Signal(terminated_ ? SIGKILL : SIGTERM);
  }
  if (!terminated_) StartDeadline(kTerminateSeconds);
  terminated_ = true;
}

void Job::LookAtTasks() {
  const int64_t now = NowNanos();
  if (now < next_look_) return;
  next_look_ = now + kLookEvery;
  for (const Task& task : tasks_) {
    if (task.runs() && !task.host.empty()) task.process->Tell(kAliveLine);
  }
  if (deadline_ != 0 || mend_at_ != 0) return;  // the end has begun, and has its own
  std::vector<TaskState> states;
  for (const Task& task : tasks_) {
    states.push_back(!task.runs()              ? TaskState::kEnded
                     : task.process->Stopped() ? TaskState::kStopped
                                               : TaskState::kRunning);
  }
  const WaitWatch::Finding finding = watch_->Look(states, now);
  for (const std::string& line : finding.lines) output_.Say("tutti run: " + line);
  for (const size_t task : finding.given_up) tasks_[task].process->Signal(SIGKILL);
}

std::string Job::HowItEnded(const Cause& cause) const {
  if (cause.never_came) return "exited with code 0 before it joined the others, who wait for it";
  const std::string& host = tasks_[cause.loss.task].host;
  const int code = cause.loss.code;
  if (!host.empty() && cause.signal == 0 && code > 128) {
    // What ended a task elsewhere is in its code; 255 is ssh's own.
    return code == kSshFailed
               ? fmt::format("was lost: ssh to {} failed, or its connection was cut", host)
               : fmt::format("was ended by {} on {}", SignalName(code - 128), host);
  }
  return cause.signal != 0 ? fmt::format("was ended by {}", SignalName(cause.signal))
                           : fmt::format("exited with code {}", cause.loss.code);
}

void Job::TellCause() {
  const std::string& role = tasks_[cause_->loss.task].role;
  output_.Say(fmt::format("tutti run: {} {}; its last lines:", role, HowItEnded(*cause_)));
  for (const std::string& line : cause_->last_lines) output_.Say("  " + line);
  if (!gave_up_.empty()) output_.Say(fmt::format("tutti run: gave up on {}: {}", role, gave_up_));
  if (!options_.log_dir.empty()) {
    output_.Say(fmt::format("tutti run: all it wrote is in {}", options_.log_dir));
  }
}

}  // namespace tutti
