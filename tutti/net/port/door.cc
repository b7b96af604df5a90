#include "tutti/net/port/door.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/port/handshake_io.h"

namespace tutti::net {
namespace {

// At one go, so that a flood does not keep the links waiting.
constexpr int kMaxAccepts = 32;

Socket OpenSpare() { return Socket(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

// A connection that has not said yet who it is.
class Door::Pending final : public EventHandler {
 public:
  Pending(Door* door, Socket socket, std::string from, int64_t deadline)
      : door_(door),
        socket_(std::move(socket)),
        from_(std::move(from)),
        deadline_(deadline),
        handshake_(door->own_, /*connecting=*/false, /*expected_peer=*/-1, door->hooks_.admit) {}
  ~Pending() { End(); }

  absl::Status Watch() { return door_->poller_->Add(socket_.fd(), EPOLLIN, this); }

  void OnEvents(uint32_t /*events*/) override {
    if (over()) return;
    door_->hooks_.moved();
    if (const absl::Status status = handshake_.Continue(socket_.fd()); !status.ok()) {
      // Whoever is not admitted now tries again; nothing is wrong.
      if (handshake_.refusal() == Refusal::kNotAdmitted) return End();
      return Refuse(MessageOf(status));
    }
    if (!handshake_.done()) return;
    door_->poller_->Remove(socket_.fd());
    --door_->waiting_;
    door_->hooks_.adopt(handshake_.peer(), std::move(socket_));
  }

  void Refuse(std::string_view why) {
    door_->LogRefusal(from_, why);
    End();
  }

  bool over() const { return !socket_.valid(); }
  int64_t deadline() const { return deadline_; }

 private:
  void End() {
    if (over()) return;
    door_->poller_->Remove(socket_.fd());
    socket_.Close();
    --door_->waiting_;
  }

  Door* const door_;
  Socket socket_;
  const std::string from_;
  const int64_t deadline_;
  HandshakeIo handshake_;
};

Door::Door(Poller* poller, const Identity& own, Options options, Hooks hooks)
    : poller_(poller), own_(own), options_(std::move(options)), hooks_(std::move(hooks)) {}

Door::~Door() {
  if (socket_.valid()) poller_->Remove(socket_.fd());
}

absl::Status Door::Open(Socket listening) {
  socket_ = std::move(listening);
  spare_ = OpenSpare();
  return poller_->Add(socket_.fd(), EPOLLIN, this);
}

void Door::OnEvents(uint32_t /*events*/) {
  hooks_.moved();
  for (int i = 0; i < kMaxAccepts; ++i) {
    Address from;
    from.length = sizeof(from.storage);
    Socket socket(accept4(socket_.fd(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      Add(std::move(socket), from);
    } else if (errno == EMFILE || errno == ENFILE) {
      return RefuseForWantOfDescriptors();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Door::Add(Socket socket, const Address& from) {
  if (waiting_ >= options_.max_pending) {
    for (const auto& oldest : pending_) {
      if (oldest->over()) continue;
      oldest->Refuse("too many connections have not said yet who they are");
      break;
    }
  }
  SetNoDelay(socket.fd());
  const int64_t deadline = NowNanos() + static_cast<int64_t>(options_.handshake_seconds * 1e9);
  auto& added = pending_.emplace_back(
      std::make_unique<Pending>(this, std::move(socket), ToString(from), deadline));
  ++waiting_;
  if (const absl::Status status = added->Watch(); !status.ok()) {
    return added->Refuse(MessageOf(status));
  }
  hooks_.wake_by(deadline);
}

void Door::RefuseForWantOfDescriptors() {
  spare_.Close();
  Socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  spare_ = OpenSpare();
  LogRefusal("somebody", "this process has no file descriptors left (ulimit -n)");
}

void Door::LogRefusal(const std::string& from, std::string_view why) {
  if (!refusals_.HasRoom()) return;
  Log(LogLevel::kWarning, "{} refused a connection from {}: {}", options_.who, from, why);
}

void Door::CheckDeadlines(int64_t now) {
  for (const auto& pending : pending_) {
    if (pending->over()) continue;
    if (now < pending->deadline()) return hooks_.wake_by(pending->deadline());
    pending->Refuse(fmt::format("no handshake within {} s", options_.handshake_seconds));
  }
}

void Door::Sweep() {
  std::erase_if(pending_, [](const auto& pending) { return pending->over(); });
}

}  // namespace tutti::net
