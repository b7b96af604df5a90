#include "tutti/net/port/port.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>

#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/port/listen_at.h"

namespace tutti::net {
namespace {

absl::StatusOr<Socket> AdoptListening(int fd) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0) {
    return InvalidArgument("descriptor {}, which was given as the listening socket, is none", fd);
  }
  Socket socket(fd);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return socket;
}

bool OnlyThisHost(const Address& address) {
  const std::string host = address.host();
  return host == "::1" || host.starts_with("127.");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> Port::Open(PortOptions options) {
  const Identity& own = options.identity;
  const auto patience = static_cast<int64_t>(options.start_seconds * 1e9);
  absl::StatusOr<Socket> listening =
      options.listening_fd >= 0
          ? AdoptListening(options.listening_fd)
          : ListenAt(options.bind, {.deadline_nanos = patience == 0 ? 0 : NowNanos() + patience,
                                    .stopped = options.stopped});
  if (!listening.ok()) return listening.status();
  if (own.task.empty() || own.task.size() > kMaxTaskBytes || own.job.size() > kMaxJobBytes) {
    return InvalidArgument(
        "task name of {} bytes and job name of {}; expected 1 to {} and at most {}",
        own.task.size(), own.job.size(), kMaxTaskBytes, kMaxJobBytes);
  }
  TUTTI_ASSIGN_OR_RETURN(const Address bound, LocalAddress(listening->fd()));
  if (own.token.empty() && !options.insecure && !OnlyThisHost(bound)) {
    return FailedPrecondition(
        "{} would listen at {}, which other hosts reach, without a token: give the job a token, "
        "listen at 127.0.0.1, or say --insecure",
        own.task, ToString(bound));
  }
  TUTTI_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Create("tutti-port"));
  return std::unique_ptr<Port>(
      new Port(std::move(options), *std::move(listening), ToString(bound), std::move(loop)));
}

Port::Port(PortOptions options, Socket listening, std::string bound,
           std::unique_ptr<EventLoop> loop)
    : options_(std::move(options)),
      bound_(std::move(bound)),
      address_(options_.advertised.empty() ? bound_ : options_.advertised),
      listening_(std::move(listening)),
      loop_(std::move(loop)) {}

Port::~Port() {
  loop_->Stop([this] { door_.reset(); });
}

void Port::Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit) {
  TUTTI_CHECK(listening_.valid());  // not started
  services_[purpose] = {std::move(handler), std::move(admit)};
}

absl::Status Port::Start() {
  Identity own = options_.identity;
  own.any_purpose = true;
  door_ = std::make_unique<Door>(
      &loop_->poller(), own,
      Door::Options{.who = fmt::format("{} ({})", own.task, bound_),
                    .handshake_seconds = options_.handshake_seconds,
                    .max_pending = options_.max_pending},
      Door::Hooks{
          .admit = [this](const Identity& peer, std::string* why) { return Admit(peer, why); },
          .adopt =
              [this](const Identity& peer, Socket socket) {
                services_.at(peer.purpose).handler(peer, std::move(socket));
              },
          .moved = [this] { SweepSoon(); },
          .wake_by = [this](int64_t at) { CheckSilent(at); }});
  TUTTI_RETURN_IF_ERROR(door_->Open(std::move(listening_)));
  return loop_->Start();
}

Refusal Port::Admit(const Identity& peer, std::string* why) const {
  const auto found = services_.find(peer.purpose);
  if (found == services_.end()) {
    *why =
        fmt::format("{} takes no connections for {}", options_.identity.task, NameOf(peer.purpose));
    return Refusal::kPurpose;
  }
  return found->second.admit == nullptr ? Refusal::kNone : found->second.admit(peer, why);
}

// The door's connections are events' handlers, so they go when the events of a round are handled.
void Port::SweepSoon() {
  if (std::exchange(sweep_posted_, true)) return;
  loop_->Post([this] {
    sweep_posted_ = false;
    door_->Sweep();
  });
}

void Port::CheckSilent(int64_t at) {
  if (check_at_ != 0 && check_at_ <= at) return;
  check_at_ = at;
  loop_->After(at - NowNanos(), [this, at] {
    if (check_at_ == at) check_at_ = 0;
    door_->CheckDeadlines(loop_->now());
    door_->Sweep();
  });
}

}  // namespace tutti::net
