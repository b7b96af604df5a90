// Every worker has a queue on the first server that only it takes from. A Gather sends one letter
// to worker 0 and one back; worker 0 is the only one that hears from several, so letters name their
// sender. A letter of failure goes to a second queue of each worker, whose taker never does
// anything else: it is heard while the worker waits, computes, or is inside a step.
//
// Where the loss of a worker ends the job, every worker looks at all others. Where it does not,
// worker 0 alone decides who is lost, so that all have the same view:
//
//   worker 0                                       worker 1, started again
//   exchanges 0 to 7, answered and kept
//   worker 1 is lost: its clock, its claims        (starts)
//   exchange 8 goes on without it
//                               <----------------  exchange 0, with a new number of its start
//   it is back                  ---------------->  what exchange 0 was, with its own text in it
//                               ... 1 to 8 ...     the same: it compares facts, learns the step
//   exchange 9 waits for it again
//
// So a worker that is started again runs the same program from the beginning, and needs no path of
// its own: whatever the others have agreed on meanwhile it is told. Letters for its former self are
// known by the number of the start, and dropped.
#include "tutti/train/strategies/ps/queue_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <random>
#include <system_error>

#include "tutti/base/log.h"
#include "tutti/base/progress_text.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);
// So often a worker may not answer that was there, but never reached.
constexpr int kMostMisses = 5;
// For a letter to a worker that may be gone.
constexpr auto kPatience = std::chrono::seconds(1);
constexpr std::string_view kEnd = "the end";

int64_t NewStart() {
  std::random_device random;
  return int64_t((uint64_t(random()) << 32 | random()) >> 2) + 1;
}

// The ranks that are present, then the texts, each with its length.
std::string Pack(const std::vector<int>& present, const std::vector<std::string>& texts) {
  std::string all = fmt::format("{} ", present.size());
  for (const int rank : present) all += fmt::format("{} ", rank);
  for (const std::string& text : texts) all += fmt::format("{} {}", text.size(), text);
  return all;
}

void Unpack(const std::string& all, std::vector<int>& present, std::vector<std::string>& texts) {
  size_t at = 0;
  const auto number = [&] {
    const size_t space = all.find(' ', at);
    const size_t value = std::stoul(all.substr(at, space - at));
    at = space + 1;
    return value;
  };
  present.clear();
  for (size_t left = number(); left > 0; --left) present.push_back(int(number()));
  while (at < all.size()) {
    const size_t size = number();
    texts.push_back(all.substr(at, size));
    at += size;
  }
}

std::string Elsewhere(int64_t worker, std::string_view there, std::string_view here) {
  return fmt::format(
      "worker {} is at \"{}\", worker 0 at \"{}\"; every worker must make the same calls in the "
      "same order",
      worker, there, here);
}

}  // namespace

QueuePeers::QueuePeers(const ParameterServers& servers, Losses losses)
    : workers_(servers.workers),
      rank_(servers.rank),
      losses_(losses),
      look_(servers.look),
      start_(NewStart()),
      start_timeout_(servers.start_timeout),
      letters_(servers),
      members_(static_cast<size_t>(servers.workers)) {
  for (int r = 0; r < workers_; ++r) present_.push_back(r);
  if (workers_ == 1) return;
  const int launcher = rank_ == 0 && losses == Losses::kAreLeftOut ? LauncherPipe() : -1;
  if (launcher >= 0) TellLauncher(launcher, kSurvivesLosses);
  try {
    threads_.emplace_back([this] { WatchFailures(); });
    threads_.emplace_back([this] { WatchWorkers(closing_.get_token()); });
    if (rank_ == 0) threads_.emplace_back([this] { TakeLetters(); });
  } catch (const std::system_error& error) {
    closing_.request_stop();
    for (std::thread& thread : threads_) thread.join();
    ThrowIfError(CannotStartThread("the thread that waits for failures of other workers",
                                   error.code().message()));
  }
}

QueuePeers::~QueuePeers() {
  closing_.request_stop();
  for (std::thread& thread : threads_) thread.join();
}

// --- Failures.

void QueuePeers::SetFailure(Code code, std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_code_ = code;
      failure_ = text;
    }
  }
  changed_.notify_all();
  aborted_.request_stop();
}

void QueuePeers::WatchFailures() {
  try {
    const Letter letter = letters_.ReceiveFailure(rank_, closing_.get_token());
    SetFailure(static_cast<Code>(letter.from), letter.text);
  } catch (const Error& error) {
    if (!closing_.stop_requested()) SetFailure(error.code(), error.what());
  }
}

std::string QueuePeers::Failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void QueuePeers::ThrowIfFailed() const {
  if (!failure_.empty()) throw Error(failure_code_, failure_);
}

void QueuePeers::Rethrow(const Error& error) const {
  const std::lock_guard lock(mutex_);
  if (error.code() == Code::kCancelled) ThrowIfFailed();
  throw error;
}

void QueuePeers::Abort(Code code, std::string_view message) {
  std::vector<int> others;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_code_ = code;
    failure_ = message;
    for (int r = 0; r < workers_; ++r) {
      if (r != rank_ && members_[size_t(r)].lost.empty()) others.push_back(r);
    }
  }
  const Letter letter = {int64_t(code), start_, 0, false, "failure", std::string(message)};
  for (const int other : others) {
    try {
      // A worker that is gone no longer takes its letters; nobody waits for that.
      letters_.SendFailure(other, letter, {.timeout = kPatience});
    } catch (const Error&) {
      // The servers may be what has failed.
    }
  }
  changed_.notify_all();
  aborted_.request_stop();
}

// --- Who is there.

void QueuePeers::WatchWorkers(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  while (!stop.stop_requested() && !aborted_.stop_requested()) {
    bool starting;
    {
      const std::lock_guard members(mutex_);
      starting = start_timeout_ > 0;
    }
    if (starting && StopRequested()) {
      return SetFailure(Code::kCancelled,
                        fmt::format("stopped by signal {} while the other workers "
                                    "were waited for",
                                    StopSignal()));
    }
    for (int r = 0; r < workers_ && look_ != nullptr && !stop.stop_requested(); ++r) {
      const bool decides = losses_ == Losses::kEndTheJob || rank_ == 0 || r == 0;
      if (r != rank_ && decides) Look(r);
    }
    never.wait_for(lock, stop, kLookEvery, [] { return false; });
  }
}

// A worker that was there once and is not any more, or is another process, is lost.
void QueuePeers::Look(int rank) {
  Member& member = members_[size_t(rank)];
  int64_t starts;
  {
    const std::lock_guard lock(mutex_);
    if (!member.lost.empty()) return;
    starts = member.starts;
  }
  const WorkerState found = look_(rank);
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (member.starts != starts || ended_) return;  // it was started again meanwhile
    if (found.error.empty() && member.incarnation == 0) member.incarnation = found.incarnation;
    // One that has sent letters, but was never reached: it died at once, or is slow to answer.
    member.misses = found.error.empty() || member.start == 0 ? 0 : member.misses + 1;
    if (member.incarnation == 0 && member.misses < kMostMisses) return;
    if (found.error.empty() && member.incarnation == found.incarnation) return;
    why = found.error.empty() ? "it was started anew" : found.error;
  }
  Lose(rank, found.task, why);
}

void QueuePeers::Lose(int rank, const std::string& task, const std::string& why) {
  const std::string text = fmt::format("worker {}{} is lost: {}", rank,
                                       task.empty() ? "" : fmt::format(" ({})", task), why);
  if (losses_ == Losses::kEndTheJob || rank == 0) {
    return SetFailure(Code::kUnavailable, text);
  }
  const std::lock_guard handling(handling_);
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[size_t(rank)];
    if (!member.lost.empty() || ended_) return;
    member.lost = text;
  }
  changed_.notify_all();
  Log(LogLevel::kWarning, "{}; the others go on without it", text);
  if (handler_) handler_->lost(rank, text);
}

void QueuePeers::SetLossHandler(std::optional<LossHandler> handler) {
  const std::lock_guard handling(handling_);
  handler_ = std::move(handler);
  if (!handler_) return;
  for (int r = 0; r < workers_; ++r) {
    std::string lost;
    {
      const std::lock_guard lock(mutex_);
      lost = members_[size_t(r)].lost;
    }
    if (!lost.empty()) handler_->lost(r, lost);
  }
}

std::vector<int> QueuePeers::Present() const {
  const std::lock_guard lock(mutex_);
  return present_;
}

// --- Worker 0's letters.

void QueuePeers::TakeLetters() {
  try {
    while (!closing_.stop_requested()) TakeLetter(letters_.Receive(0, closing_.get_token()));
  } catch (const Error& error) {
    if (!closing_.stop_requested()) SetFailure(error.code(), error.what());
  }
}

void QueuePeers::TakeLetter(Letter letter) {
  if (letter.from < 1 || letter.from >= workers_) {
    return SetFailure(Code::kInvalidArgument,
                      fmt::format("{}: a letter came from worker {}; expected 1 to {}: has every "
                                  "worker the same cluster?",
                                  letter.what, letter.from, workers_ - 1));
  }
  const auto from = int(letter.from);
  Member& member = members_[size_t(from)];
  bool anew;
  {
    const std::lock_guard lock(mutex_);
    anew = member.start != 0 && member.start != letter.start;
  }
  // Its former self is gone, whether or not that was noticed.
  if (anew) Lose(from, "", "it was started anew");
  if (anew && losses_ == Losses::kEndTheJob) return;
  const std::lock_guard handling(handling_);
  std::optional<Exchange> over;
  {
    const std::lock_guard lock(mutex_);
    if (member.start != letter.start) {
      member.start = letter.start;
      member.incarnation = 0;
      member.misses = 0;
      ++member.starts;
      for (auto& [number, letters] : waiting_) letters.erase(from);
    }
    member.lost.clear();
    if (letter.number < int64_t(over_.size())) {
      over = over_[size_t(letter.number)];
      over->texts[size_t(from)] = letter.text;
    } else {
      waiting_[letter.number][from] = letter;
    }
  }
  if (anew) {
    Log(LogLevel::kWarning, "worker {} is back", from);
    if (handler_) handler_->back(from);
  }
  if (over) {
    Answer(from, letter.start, letter.number, *std::move(over), /*late=*/true);
  } else {
    changed_.notify_all();
  }
}

void QueuePeers::Answer(int to, int64_t start, int64_t number, Exchange exchange, bool late) {
  const Letter letter = {
      0, start, number, late, std::move(exchange.what), Pack(exchange.present, exchange.texts)};
  if (losses_ == Losses::kEndTheJob) return letters_.Send(to, letter, {.stop = aborted()});
  try {
    letters_.Send(to, letter, {.timeout = kPatience, .stop = aborted()});
  } catch (const Error& error) {
    // Its queue is full: it is gone. Should the server be what is gone, everybody learns of that.
    if (error.code() != Code::kDeadlineExceeded) throw;
  }
}

// --- Exchanges.

std::chrono::nanoseconds QueuePeers::StartTimeout() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(start_timeout_));
}

bool QueuePeers::Complete(int64_t number) const {
  const auto letters = waiting_.find(number);
  for (int r = 1; r < workers_; ++r) {
    const bool came = letters != waiting_.end() && letters->second.contains(r);
    if (!came && members_[size_t(r)].lost.empty()) return false;
  }
  return true;
}

void QueuePeers::AwaitAll(std::unique_lock<std::mutex>& lock, std::string_view what,
                          int64_t number) {
  const auto over = [&] { return !failure_.empty() || Complete(number); };
  if (start_timeout_ <= 0) {
    changed_.wait(lock, over);
  } else if (!changed_.wait_for(lock, StartTimeout(), over)) {
    std::string missing;
    for (int r = 1; r < workers_; ++r) {
      if (waiting_[number].contains(r)) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
    }
    throw Error(Code::kDeadlineExceeded,
                fmt::format("{}: worker {} of {} did not appear within {:.3g} s; was it started? "
                            "--start-timeout sets how long to wait",
                            what, missing, workers_, start_timeout_));
  }
  ThrowIfFailed();
}

// Worker 0 hears from everybody.
std::vector<std::string> QueuePeers::GatherAtFirst(std::string_view what, std::string_view own) {
  const int64_t number = next_++;
  Exchange exchange = {std::string(what), std::vector<std::string>(size_t(workers_)), {0}};
  exchange.texts[0] = own;
  std::map<int, Letter> letters;
  {
    std::unique_lock lock(mutex_);
    AwaitAll(lock, what, number);
    letters = std::move(waiting_[number]);
    waiting_.erase(number);
    for (auto& [from, letter] : letters) {
      if (letter.what != what) ThrowInvalidArgument(Elsewhere(from, letter.what, what));
      exchange.texts[size_t(from)] = letter.text;
      exchange.present.push_back(from);
    }
    present_ = exchange.present;
    over_.push_back(exchange);
    start_timeout_ = 0;
    if (what == kEnd) ended_ = true;
  }
  for (const auto& [to, letter] : letters) Answer(to, letter.start, number, exchange, false);
  return std::move(exchange.texts);
}

std::vector<std::string> QueuePeers::GatherFromAll(std::string_view what, std::string_view own) {
  const int64_t number = next_++;
  letters_.Send(0, {rank_, start_, number, false, std::string(what), std::string(own)},
                {.timeout = StartTimeout(), .stop = aborted()});
  Letter answer;
  do {
    answer = letters_.Receive(rank_, aborted(), StartTimeout());
  } while (answer.start != start_ || answer.number != number);
  if (answer.what != what) ThrowInvalidArgument(Elsewhere(rank_, what, answer.what));
  std::vector<std::string> texts;
  const std::lock_guard lock(mutex_);
  Unpack(answer.text, present_, texts);
  late_ = answer.late;
  members_[0].start = 1;  // it was there
  start_timeout_ = 0;
  return texts;
}

std::vector<std::string> QueuePeers::Gather(std::string_view what, std::string_view own) {
  if (workers_ == 1) return {std::string(own)};
  try {
    return rank_ == 0 ? GatherAtFirst(what, own) : GatherFromAll(what, own);
  } catch (const Error& error) {
    Rethrow(error);
  }
}

void QueuePeers::End() {
  // Worker 0 ends as soon as it has answered.
  if (rank_ != 0) ended_ = true;
  Gather(kEnd, "");
  ended_ = true;
}

void QueuePeers::Sum(std::string_view what, std::span<double> values) {
  const std::string_view own(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = Gather(what, own);
  std::fill(values.begin(), values.end(), 0.0);
  for (const std::string& text : all) {
    for (size_t i = 0; i < values.size() && (i + 1) * sizeof(double) <= text.size(); ++i) {
      double value;
      std::memcpy(&value, text.data() + i * sizeof(double), sizeof(double));
      values[i] += value;
    }
  }
}

}  // namespace tutti
