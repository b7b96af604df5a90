#include "tutti/net/port/dial.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {
namespace {

constexpr int64_t kFirstPause = 5'000'000;
constexpr int64_t kLongestPause = 100'000'000;
// Of one attempt: a host that answers nothing at all may be one that is not up yet.
constexpr int64_t kAttemptNanos = 3'000'000'000;

// A failure that may be another a moment later. A process that has no descriptors left, or a peer
// that says no, does not get better by trying.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsNotFound(status) ||
         absl::IsDeadlineExceeded(status);
}

}  // namespace

Dial::Dial(Options options) : options_(std::move(options)), begun_(NowNanos()) {
  absl::StatusOr<Endpoint> endpoint = ParseEndpoint(options_.address);
  const Identity& own = options_.own;
  if (!endpoint.ok()) {
    End(endpoint.status());
  } else if (own.job.size() > kMaxJobBytes || own.task.size() > kMaxTaskBytes) {
    End(InvalidArgument("the job's name has {} bytes and the task's {}; expected at most {} and {}",
                        own.job.size(), own.task.size(), kMaxJobBytes, kMaxTaskBytes));
  } else {
    endpoint_ = *std::move(endpoint);
  }
}

short Dial::events() const { return stage_ == Stage::kConnecting ? POLLOUT : POLLIN; }

void Dial::LookedUp(absl::StatusOr<std::vector<Address>> addresses) {
  if (!wants_lookup()) return;
  if (!addresses.ok()) return Fail(addresses.status());
  addresses_ = *std::move(addresses);
  next_ = 0;
  TryNext();
}

void Dial::TryNext() {
  ++attempts_;
  const Address& address = addresses_[next_];
  absl::StatusOr<Socket> socket = StartConnect(address);
  if (!socket.ok()) return Fail(socket.status());
  socket_ = *std::move(socket);
  SetNoDelay(socket_.fd());
  stage_ = Stage::kConnecting;
  wake_at_ = std::min(options_.deadline_nanos, NowNanos() + kAttemptNanos);
}

void Dial::Step() {
  if (over_ || stage_ == Stage::kLookup) return;
  const int64_t now = NowNanos();
  if (stage_ == Stage::kPause) {
    if (now < wake_at_) return;
    stage_ = Stage::kLookup;
    return;
  }
  pollfd entry = {socket_.fd(), events(), 0};
  if (poll(&entry, 1, 0) <= 0) {
    if (now >= wake_at_) {
      Fail(Unavailable("{}", stage_ == Stage::kHandshake ? "no answer in the handshake"
                                                         : "no answer to the connection"));
    }
    return;
  }
  if (stage_ == Stage::kConnecting) {
    if (const absl::Status status = ConnectResult(socket_.fd()); !status.ok()) return Fail(status);
    handshake_.emplace(options_.own, options_.expected_task);
    if (const absl::Status status = handshake_->Start(socket_.fd()); !status.ok()) {
      return Fail(status);
    }
    stage_ = Stage::kHandshake;
    return;
  }
  if (const absl::Status status = handshake_->Continue(socket_.fd()); !status.ok()) {
    return Fail(status);
  }
  if (!handshake_->done()) return;
  peer_ = handshake_->peer();
  over_ = true;
}

void Dial::Fail(const absl::Status& why) {
  const std::string where =
      addresses_.empty() ? "" : fmt::format("{}: ", ToString(addresses_[next_]));
  socket_.Close();
  handshake_.reset();
  const absl::Status last = WithPrefix(why, stage_ == Stage::kLookup ? "" : where);
  if (!MayPass(why)) return End(last);
  const int64_t now = NowNanos();
  if (now >= options_.deadline_nanos) {
    return End(Unavailable("not reached in {:.1f} s and {} {}; the last failure: {}",
                           static_cast<double>(now - begun_) * 1e-9, attempts_,
                           attempts_ == 1 ? "attempt" : "attempts", MessageOf(last)));
  }
  if (stage_ != Stage::kLookup && next_ + 1 < addresses_.size()) {
    ++next_;
    return TryNext();
  }
  stage_ = Stage::kPause;
  pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
  wake_at_ = std::min(now + pause_, options_.deadline_nanos);
}

void Dial::End(absl::Status status) {
  over_ = true;
  status_ = WithPrefix(status, Target() + ": ");
}

std::string Dial::Target() const {
  if (options_.expected_task.empty()) return fmt::format("the task at {}", options_.address);
  return fmt::format("{} ({})", options_.expected_task, options_.address);
}

absl::StatusOr<Connection> ConnectTo(const std::string& address, Identity own,
                                     Identity::Purpose purpose, const std::string& task,
                                     int64_t deadline_nanos) {
  own.purpose = purpose;
  Dial dial({.address = address,
             .own = std::move(own),
             .expected_task = task,
             .deadline_nanos = deadline_nanos});
  while (dial.Open()) {
    if (dial.wants_lookup()) {
      dial.LookedUp(Resolve(dial.endpoint()));
      continue;
    }
    const int64_t left = std::max<int64_t>(dial.wake_at() - NowNanos(), 0);
    pollfd entry = {dial.fd(), dial.events(), 0};  // poll leaves out a descriptor of -1
    poll(&entry, 1, static_cast<int>((left + 999'999) / 1'000'000));
    dial.Step();
  }
  if (!dial.status().ok()) return dial.status();
  return Connection{.peer = dial.peer(), .socket = dial.TakeSocket()};
}

}  // namespace tutti::net
