// Every worker has a queue on the first server that only it takes from. A Gather sends one letter
// to worker 0 and one back; worker 0 is the only one that hears from several, so letters name their
// sender. They travel this way and not through the store of the job because they may be large
// (traces, reports), and because an exchange goes on while a store behind an etcd pauses.
//
// The job's membership decides which workers are lost and which failed first, and notifies all: a
// failure is noticed while the worker waits, computes, or is inside a step. If the loss of a worker
// ends the job, every worker watches all others. If it does not, worker 0 alone decides which
// workers are left out, so that all have the same view:
//
//   worker 0                                       worker 1, started again
//   exchanges 0 to 7, answered and kept
//   worker 1 is lost: its clock, its claims        (starts)
//   exchange 8 goes on without it
//                               <----------------  exchange 0, with the revision of its start
//   it is back                  ---------------->  what exchange 0 was, with its own text in it
//                               ... 1 to 8 ...     the same: it compares facts, learns the step
//   exchange 9 waits for it again
//
// So a restarted worker runs the program from the beginning without a special code path: worker 0
// sends it the results of all exchanges that it missed. Every letter carries the revision at which
// its sender's or receiver's process joined. A restarted process has a greater revision, so letters
// from or to the previous process are recognised and dropped.
#include "tutti/train/strategies/ps/queue_peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <system_error>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/progress_text.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {
namespace {

constexpr int64_t kLookEvery = 50'000'000;  // nanoseconds, while the membership has nothing to tell
// A process that sent a letter is a member by then; after so many looks that did not find it, the
// store is asked.
constexpr int kMostUnseen = 20;
// For a letter to a worker that may be gone.
constexpr auto kPatience = std::chrono::seconds(1);
// Calls of the store that ask whether this worker still has its place, and the pause between them.
constexpr int kPlaceCalls = 5;
constexpr auto kPlacePause = std::chrono::milliseconds(20);
constexpr std::string_view kEnd = "the end";

// The ranks that are present, then the texts, each with its length.
std::string Pack(const std::vector<int>& present, const std::vector<std::string>& texts) {
  std::string all = fmt::format("{} ", present.size());
  for (const int rank : present) all += fmt::format("{} ", rank);
  for (const std::string& text : texts) all += fmt::format("{} {}", text.size(), text);
  return all;
}

// The opposite, for so many workers. False if `all` is not what Pack makes.
bool Unpack(std::string_view all, size_t workers, std::vector<int>& present,
            std::vector<std::string>& texts) {
  // The number at the beginning and the space after it, if it is at most `most`.
  const auto take = [&](size_t most, size_t& value) {
    const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), value);
    const auto digits = size_t(end - all.data());
    if (error != std::errc() || value > most || digits == all.size() || *end != ' ') return false;
    all.remove_prefix(digits + 1);
    return true;
  };
  size_t count = 0, rank = 0, size = 0;
  if (!take(workers, count)) return false;
  for (; count > 0; --count) {
    if (!take(workers - 1, rank)) return false;
    present.push_back(int(rank));
  }
  for (size_t w = 0; w < workers; ++w) {
    if (!take(all.size(), size) || size > all.size()) return false;
    texts.emplace_back(all.substr(0, size));
    all.remove_prefix(size);
  }
  return all.empty();
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
      membership_(servers.membership),
      worker_tasks_(servers.worker_tasks),
      server_tasks_(servers.server_tasks),
      start_(membership_ == nullptr ? 1 : membership_->revision()),
      start_timeout_(servers.start_timeout),
      late_nanos_(int64_t(servers.late_seconds * 1e9)),
      letters_(servers),
      members_(static_cast<size_t>(servers.workers)) {
  for (int r = 0; r < workers_; ++r) present_.push_back(r);
  if (membership_ == nullptr && workers_ > 1) {
    ThrowInvalidArgument(fmt::format("{} workers without a membership", workers_));
  }
  const int launcher =
      rank_ == 0 && workers_ > 1 && losses == Losses::kAreLeftOut ? LauncherPipe() : -1;
  if (launcher >= 0) TellLauncher(launcher, kSurvivesLosses);
  try {
    if (membership_ != nullptr) threads_.emplace_back([this] { Watch(closing_.get_token()); });
    if (rank_ == 0 && workers_ > 1) threads_.emplace_back([this] { TakeLetters(); });
  } catch (const std::system_error& error) {
    closing_.request_stop();
    for (std::thread& thread : threads_) thread.join();
    ThrowIfError(
        CannotStartThread("the thread that follows the other workers", error.code().message()));
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
    if (failure_.ok()) failure_ = MakeStatus(absl::StatusCode(code), "{}", text);
  }
  changed_.notify_all();
  aborted_.request_stop();
}

absl::Status QueuePeers::FailureStatus() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string QueuePeers::Failure() const { return std::string(MessageOf(FailureStatus())); }

void QueuePeers::ThrowIfFailed() const { ThrowIfError(failure_); }

void QueuePeers::Rethrow(const Error& error) const {
  if (error.code() == Code::kCancelled) {
    const std::lock_guard lock(mutex_);
    ThrowIfFailed();
  }
  // Servers refuse whoever has lost its place, and are refused when they have lost theirs. Another
  // start may succeed.
  if (membership_ != nullptr &&
      (error.code() == Code::kAborted || error.code() == Code::kUnavailable)) {
    absl::Status place = membership_->CheckPlace();
    // The connection to the store may be one of those that the others have closed. Another call
    // makes a new one, over which the store answers.
    for (int call = 1; call < kPlaceCalls && absl::IsUnavailable(place); ++call) {
      std::this_thread::sleep_for(kPlacePause);
      place = membership_->CheckPlace();
    }
    throw Error(Code::kUnavailable,
                absl::IsAborted(place) ? std::string(MessageOf(place)) : error.what());
  }
  throw error;
}

void QueuePeers::RethrowOfStep(const Error& error) const {
  if (error.code() != Code::kOutOfRange && error.code() != Code::kInvalidArgument) Rethrow(error);
  throw Error(error.code(), fmt::format("the step of worker {}: {}", rank_, error.what()));
}

void QueuePeers::Abort(Code code, std::string_view message) {
  const absl::Status failure = MakeStatus(absl::StatusCode(code), "{}", message);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = failure;
  }
  changed_.notify_all();
  aborted_.request_stop();
  if (membership_ != nullptr) membership_->Fail(failure);
}

// --- Who is there.

void QueuePeers::Watch(const std::stop_token& stop) {
  const auto over = [&] { return stop.stop_requested() || aborted_.stop_requested(); };
  while (!over()) {
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
    {
      const std::lock_guard handling(handling_);
      if (handler_) handler_->look();
    }
    const auto changed = membership_->AwaitChange(NowNanos() + kLookEvery, [&] {
      LookAround();
      return absl::StatusOr<bool>(over());
    });
    if (changed.ok()) continue;
    LookAround();  // a store that ends with worker 0 may have told why just before
    const absl::StatusCode code = changed.status().code();
    const bool fate = code == absl::StatusCode::kAborted || code == absl::StatusCode::kCancelled;
    if (!over() && !ended_) {
      SetFailure(fate ? Code::kUnavailable : Code(code), MessageOf(changed.status()));
    }
    return;
  }
}

void QueuePeers::LookAround() {
  if (ended_) return;
  if (const auto failure = membership_->KnownFailure()) {
    return SetFailure(static_cast<Code>(failure->why.code()), MessageOf(failure->why));
  }
  if (rank_ == 0) TakeStopRequest();
  for (const std::string& task : server_tasks_) {
    const absl::Status gone = membership_->ViewOf(task).gone;
    // One that ends in good order does so on request, and is missed by whoever needs it.
    if (gone.ok() || absl::IsCancelled(gone)) continue;
    return SetFailure(Code::kUnavailable, fmt::format("{} {}", task, MessageOf(gone)));
  }
  for (int r = 0; r < workers_; ++r) {
    if (r != rank_ && (rank_ == 0 || r == 0)) LookAt(r);
  }
}

// Servers do not take part in steps: worker 0 asks the others to stop in their place.
void QueuePeers::TakeStopRequest() {
  const auto asked = membership_->KnownStopRequest();
  if (!asked || std::exchange(stop_taken_, true) || StopRequested()) return;
  Log(LogLevel::kWarning, "{} got signal {}; the training stops after this step", asked->task,
      asked->signal);
  RequestStop(asked->signal);
}

// A process that was there once and is not any more, or has a successor, is lost.
void QueuePeers::LookAt(int rank) {
  const std::string& task = worker_tasks_[size_t(rank)];
  const net::Membership::View view = membership_->ViewOf(task);
  std::string why;
  bool ask = false;
  int64_t start = 0;
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[size_t(rank)];
    if (!member.lost.empty()) return;
    // One that was there before may be a place that its dead owner has left in the store; it is
    // known by its first letter.
    if (member.start == 0 && view.revision > start_) member.start = view.revision;
    if (member.start == 0) return;
    start = member.start;
    if (view.revision > start) {
      why = "is lost: it was started anew";
    } else if (view.revision == start) {
      if (view.gone.ok()) return;
      why = MessageOf(view.gone);
    } else {
      ask = ++member.unseen % kMostUnseen == 0;
      if (!ask) return;
    }
  }
  if (ask) {
    if (IsMember(task, start)) return;
    why = "is lost: it went before this worker came";
  }
  Lose(rank, start, why);
}

bool QueuePeers::IsMember(const std::string& task, int64_t revision) const {
  return !absl::IsFailedPrecondition(membership_->CheckFence(task, revision));
}

void QueuePeers::Lose(int rank, int64_t start, std::string_view why) {
  const std::string text = fmt::format("worker {} ({}) {}{}", rank, worker_tasks_[size_t(rank)],
                                       why.starts_with("is lost") ? "" : "is lost: it ", why);
  if (losses_ == Losses::kEndTheJob && rank_ == 0) return Abort(Code::kUnavailable, text);
  if (rank == 0) return SetFailure(Code::kUnavailable, text);
  const std::lock_guard handling(handling_);
  {
    const std::lock_guard lock(mutex_);
    Member& member = members_[size_t(rank)];
    if (!member.lost.empty() || member.start != start || ended_) return;
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

std::vector<int> QueuePeers::Lost() {
  const std::lock_guard handling(handling_);
  const std::lock_guard lock(mutex_);
  std::vector<int> lost;
  for (int r = 0; r < workers_; ++r) {
    if (!members_[size_t(r)].lost.empty()) lost.push_back(r);
  }
  return lost;
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
  if (letter.number < 0) {
    return SetFailure(Code::kInvalidArgument,
                      fmt::format("{}: a letter of worker {} is for exchange {}; expected 0 or "
                                  "more: it is damaged",
                                  letter.what, letter.from, letter.number));
  }
  const auto from = int(letter.from);
  Member& member = members_[size_t(from)];
  int64_t before = 0;
  {
    const std::lock_guard lock(mutex_);
    before = member.start;
  }
  if (letter.start < before) return;  // it has a successor
  // Its former self is gone, whether or not that was noticed.
  const bool anew = before != 0 && before != letter.start;
  if (anew) Lose(from, before, "is lost: it was started anew");
  if (anew && losses_ == Losses::kEndTheJob) return;
  const std::lock_guard handling(handling_);
  std::optional<Exchange> over;
  {
    const std::lock_guard lock(mutex_);
    if (member.start != letter.start) {
      member.start = letter.start;
      member.unseen = 0;
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
  const auto over = [&] { return !failure_.ok() || Complete(number); };
  if (start_timeout_ <= 0) {
    const int64_t since = NowNanos();
    while (!changed_.wait_for(lock, std::chrono::nanoseconds(late_nanos_), over)) {
      const auto letters = waiting_.find(number);
      std::vector<int> late;
      for (int r = 1; r < workers_; ++r) {
        const bool came = letters != waiting_.end() && letters->second.contains(r);
        if (!came && members_[size_t(r)].lost.empty()) late.push_back(r);
      }
      WarnOfLate(what, since, late);
    }
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

void QueuePeers::WarnOfLate(std::string_view what, int64_t since,
                            const std::vector<int>& late) const {
  std::vector<std::string> names;
  for (const int r : late) {
    names.push_back(fmt::format("worker {} ({})", r, worker_tasks_[size_t(r)]));
  }
  Log(LogLevel::kWarning, "{} has waited {:.0f} s for {}; {} alive", what,
      double(NowNanos() - since) * 1e-9, fmt::join(names, ", "),
      late.size() == 1 ? "it is" : "they are");
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
  std::vector<int> present;
  std::vector<std::string> texts;
  if (!Unpack(answer.text, size_t(workers_), present, texts)) {
    throw Error(
        Code::kDataLoss,
        fmt::format("{}: the answer of worker 0 to worker {} is damaged; expected the texts "
                    "of {} workers, got {} bytes that are something else",
                    what, rank_, workers_, answer.text.size()));
  }
  const std::lock_guard lock(mutex_);
  present_ = std::move(present);
  if (members_[0].start == 0) members_[0].start = membership_->ViewOf(worker_tasks_[0]).revision;
  late_ = answer.late;
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
