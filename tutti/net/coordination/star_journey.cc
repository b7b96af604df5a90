// How a rank other than 0 comes to rank 0: look up where it is, connect, shake hands, say who and
// what we are, and wait until everybody has come. Runs on the caller's thread, since there is
// nothing else to do yet.
//
// Rank 0 may start later than the others, and its host may be slow to come up. Errors that may pass
// are retried, with growing pauses, until the deadline; others (a wrong token, another version,
// ...) end the attempt at once.
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "tutti/base/cancellation.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/meeting_file.h"
#include "tutti/net/coordination/star_spoke.h"

namespace tutti::net {

namespace {

constexpr int64_t kFirstPauseNanos = 10'000'000;
constexpr int64_t kLongestPauseNanos = 500'000'000;
constexpr int64_t kAttemptNanos = 5'000'000'000;
constexpr int64_t kLookNanos = 50'000'000;  // between looks for a cancellation
// Rank 0's own deadline, which names the missing, may come a little later than ours: by as much as
// it started later, up to this.
constexpr int64_t kLastWordNanos = 1'000'000'000;

}  // namespace

class StarJourney {
 public:
  explicit StarJourney(const StarOptions& options)
      : options_(options),
        timeout_(static_cast<int64_t>(options.timeout_seconds * 1e9)),
        deadline_(NowNanos() + timeout_) {}

  absl::StatusOr<std::unique_ptr<Star>> Travel();

 private:
  // What an attempt came to: a star, or a reason; `final_` if time does not cure it.
  absl::StatusOr<std::unique_ptr<Star>> Attempt();
  absl::StatusOr<Endpoint> Destination();
  absl::StatusOr<std::unique_ptr<Star>> Join(const Address& address);
  absl::Status ShakeHandsWithHub(int fd);
  absl::Status WaitForWelcome(int fd, ControlReader* reader, ControlMessage* welcome);
  absl::StatusOr<Socket> Reach(const Address& address, int64_t deadline);
  // As net::WaitFor, but ends, not OK, with a cancellation too.
  absl::Status WaitFor(int fd, short events, int64_t deadline) const;
  bool cancelled() const {
    return options_.cancellation != nullptr && options_.cancellation->cancelled();
  }
  absl::Status WithRank(const absl::Status& status) const {
    return WithPrefix(status, fmt::format("rank {}: ", options_.rank));
  }
  absl::Status Final(absl::Status status) {
    final_ = true;
    return status;
  }

  const StarOptions& options_;
  const int64_t timeout_;
  const int64_t deadline_;
  std::string where_ = "an unknown address";
  bool final_ = false;
};

absl::StatusOr<std::unique_ptr<Star>> StarJourney::Travel() {
  int64_t pause = kFirstPauseNanos;
  absl::Status reason;
  while (true) {
    absl::StatusOr<std::unique_ptr<Star>> star = Attempt();
    if (star.ok()) return star;
    if (cancelled()) return options_.cancellation->status();
    if (final_) return star;
    // The last attempt may end for lack of time; why the one before it failed says more.
    if (reason.ok() || !absl::IsDeadlineExceeded(star.status())) reason = star.status();
    const int64_t left = deadline_ - NowNanos();
    if (left <= 0) {
      return DeadlineExceeded("rank {} cannot reach rank 0 at {}: {}; tried for {} s",
                              options_.rank, where_, MessageOf(reason), options_.timeout_seconds);
    }
    for (int64_t rest = std::min(pause, left); rest > 0 && !cancelled(); rest -= kLookNanos) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(rest, kLookNanos)));
    }
    pause = std::min(2 * pause, kLongestPauseNanos);
  }
}

absl::StatusOr<std::unique_ptr<Star>> StarJourney::Attempt() {
  TUTTI_ASSIGN_OR_RETURN(const Endpoint endpoint, Destination());
  where_ = ToString(endpoint);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(endpoint));
  absl::StatusOr<std::unique_ptr<Star>> star = Unavailable("no address");
  for (const Address& address : addresses) {
    star = Join(address);
    if (star.ok() || final_) break;
  }
  return star;
}

absl::StatusOr<Endpoint> StarJourney::Destination() {
  if (options_.file.empty()) {
    absl::StatusOr<Endpoint> endpoint = ParseEndpoint(options_.address);
    return endpoint.ok() ? endpoint : Final(endpoint.status());
  }
  where_ = fmt::format("the address in {}", options_.file);
  TUTTI_ASSIGN_OR_RETURN(const MeetingFile file, ReadMeetingFile(options_.file));
  if (file.job != options_.job || file.generation != options_.generation) {
    return Unavailable("the file is of job '{}', generation {}, expected job '{}', generation {}",
                       file.job, file.generation, options_.job, options_.generation);
  }
  return ParseEndpoint(file.address);
}

absl::Status StarJourney::WaitFor(int fd, short events, int64_t deadline) const {
  while (!cancelled()) {
    const int64_t look = NowNanos() + kLookNanos;
    const absl::Status status = net::WaitFor(fd, events, std::min(look, deadline));
    if (look >= deadline || !absl::IsDeadlineExceeded(status)) return status;
  }
  return options_.cancellation->status();
}

absl::StatusOr<Socket> StarJourney::Reach(const Address& address, int64_t deadline) {
  TUTTI_ASSIGN_OR_RETURN(Socket made, StartConnect(address));
  TUTTI_RETURN_IF_ERROR(
      WithPrefix(WaitFor(made.fd(), POLLOUT, deadline), "no answer to the connection: "));
  TUTTI_RETURN_IF_ERROR(ConnectResult(made.fd()));
  SetNoDelay(made.fd());
  return made;
}

absl::StatusOr<std::unique_ptr<Star>> StarJourney::Join(const Address& address) {
  const int64_t limit = std::min(deadline_, NowNanos() + kAttemptNanos);
  // All that a limit of the system may refuse comes first: a rank that was welcomed and cannot stay
  // would look like one that died.
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create("tutti-star");
  if (!loop.ok()) return Final(WithRank(loop.status()));
  absl::StatusOr<Socket> reached = Reach(address, limit);
  if (absl::IsResourceExhausted(reached.status())) return Final(WithRank(reached.status()));
  if (!reached.ok()) return reached.status();
  Socket socket = *std::move(reached);
  TUTTI_RETURN_IF_ERROR(ShakeHandsWithHub(socket.fd()));
  ControlMessage join;
  join.type = ControlMessage::Type::kJoin;
  join.number = static_cast<uint64_t>(getpid());
  join.texts = options_.fingerprint;
  TUTTI_RETURN_IF_ERROR(WriteAll(socket.fd(), Encode(join), limit));
  ControlReader reader(kMaxControlBytes);
  ControlMessage welcome;
  TUTTI_RETURN_IF_ERROR(WaitForWelcome(socket.fd(), &reader, &welcome));
  std::unique_ptr<StarSpoke> spoke(new StarSpoke(options_, *std::move(loop)));
  const absl::Status begun =
      spoke->Begin(std::move(socket), std::move(reader), std::move(welcome.texts));
  if (!begun.ok()) return Final(begun);
  return std::unique_ptr<Star>(std::move(spoke));
}

absl::Status StarJourney::ShakeHandsWithHub(int fd) {
  Identity own;
  own.job = options_.job;
  own.token = options_.token;
  own.rank = options_.rank;
  own.size = options_.size;
  own.generation = options_.generation;
  own.purpose = Identity::Purpose::kControl;
  own.any_size = true;  // rank 0 compares, and says what differs
  Handshake handshake(own, /*connecting=*/true, /*expected_peer=*/0);
  absl::Status status = ShakeHands(fd, &handshake, std::min(deadline_, NowNanos() + kAttemptNanos));
  if (handshake.state() != Handshake::State::kFailed) return status;
  // A port can be in the hands of somebody else for a while: of the job's last generation, which is
  // about to end, or, where a stale file named it, of anybody.
  const bool stale_file = !options_.file.empty() && (handshake.refusal() == Refusal::kJob ||
                                                     handshake.refusal() == Refusal::kMalformed ||
                                                     handshake.refusal() == Refusal::kGeneration);
  if (stale_file || handshake.refusal() == Refusal::kGeneration) return status;
  return Final(
      WithPrefix(status, fmt::format("rank {} cannot join rank 0 at {}: ", options_.rank, where_)));
}

absl::Status StarJourney::WaitForWelcome(int fd, ControlReader* reader, ControlMessage* welcome) {
  const int64_t last_word = deadline_ + std::min(timeout_, kLastWordNanos);
  std::string missing = "rank 0 has said nothing more";
  std::array<std::byte, 16384> piece;
  while (true) {
    bool found = false;
    TUTTI_RETURN_IF_ERROR(reader->Next(welcome, &found));
    if (found && welcome->type == ControlMessage::Type::kWelcome) return absl::OkStatus();
    if (found && welcome->type == ControlMessage::Type::kRefused) {
      return Final(WithPrefix(welcome->status(), fmt::format("rank 0 at {}: ", where_)));
    }
    if (found && welcome->type == ControlMessage::Type::kWaiting && !welcome->texts.empty()) {
      missing = welcome->texts[0];
    }
    if (found) continue;
    const IoResult result = ReadSome(fd, piece);
    if (result.kind == IoResult::Kind::kMoved) {
      reader->Append(std::span(piece).first(result.bytes));
    } else if (result.kind != IoResult::Kind::kAgain) {
      return Unavailable(
          "it was reached, and then its connection closed before all ranks had come");
    } else if (!WaitFor(fd, POLLIN, last_word).ok()) {
      return Final(DeadlineExceeded("rank {} has waited {} s at rank 0 ({}): {}", options_.rank,
                                    options_.timeout_seconds, where_, missing));
    }
  }
}

absl::StatusOr<std::unique_ptr<Star>> StarSpoke::Connect(const StarOptions& options) {
  return StarJourney(options).Travel();
}

}  // namespace tutti::net
