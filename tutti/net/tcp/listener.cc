#include "tutti/net/tcp/listener.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/tcp/shared.h"

namespace tutti::net::tcp {
namespace {

// At one go, so that a flood does not keep the links waiting.
constexpr int kMaxAccepts = 32;

Socket OpenSpare() { return Socket(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

// A connection that has not said yet who it is.
class Listener::Pending final : public EventHandler {
 public:
  Pending(Listener* listener, Socket socket, std::string from, int64_t deadline)
      : listener_(listener),
        socket_(std::move(socket)),
        from_(std::move(from)),
        deadline_(deadline),
        greeting_(listener->shared_->identity, /*connecting=*/false, /*expected_peer=*/-1,
                  listener->admit_) {}
  ~Pending() { End(); }

  absl::Status Watch() { return listener_->shared_->poller.Add(socket_.fd(), EPOLLIN, this); }

  void OnEvents(uint32_t /*events*/) override {
    if (over()) return;
    listener_->shared_->moved = true;
    if (const absl::Status status = greeting_.Continue(socket_.fd()); !status.ok()) {
      return Refuse(MessageOf(status));
    }
    if (!greeting_.done()) return;
    listener_->shared_->poller.Remove(socket_.fd());
    --listener_->waiting_;
    listener_->adopt_(greeting_.peer(), std::move(socket_));
  }

  void Refuse(std::string_view why) {
    listener_->LogRefusal(from_, why);
    End();
  }

  bool over() const { return !socket_.valid(); }
  int64_t deadline() const { return deadline_; }

 private:
  void End() {
    if (over()) return;
    listener_->shared_->poller.Remove(socket_.fd());
    socket_.Close();
    --listener_->waiting_;
  }

  Listener* const listener_;
  Socket socket_;
  const std::string from_;
  const int64_t deadline_;
  Greeting greeting_;
};

Listener::Listener(Shared* shared, Handshake::Admit admit, Adopt adopt)
    : shared_(shared), admit_(std::move(admit)), adopt_(std::move(adopt)) {}

Listener::~Listener() = default;

absl::Status Listener::Open() {
  const Endpoint wanted = {shared_->options.host, static_cast<uint16_t>(shared_->options.port)};
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Address> addresses, Resolve(wanted));
  TUTTI_ASSIGN_OR_RETURN(socket_, net::Listen(addresses.front()));
  TUTTI_ASSIGN_OR_RETURN(const Address bound, LocalAddress(socket_.fd()));
  spare_ = OpenSpare();
  endpoint_ = ToString(bound);
  return shared_->poller.Add(socket_.fd(), EPOLLIN, this);
}

void Listener::OnEvents(uint32_t /*events*/) {
  shared_->moved = true;
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

void Listener::Add(Socket socket, const Address& from) {
  if (waiting_ >= shared_->options.max_pending) {
    for (const auto& oldest : pending_) {
      if (oldest->over()) continue;
      oldest->Refuse("too many connections have not said yet who they are");
      break;
    }
  }
  SetNoDelay(socket.fd());
  const int64_t deadline =
      NowNanos() + static_cast<int64_t>(shared_->options.connect_seconds * 1e9);
  auto& added = pending_.emplace_back(
      std::make_unique<Pending>(this, std::move(socket), ToString(from), deadline));
  ++waiting_;
  if (const absl::Status status = added->Watch(); !status.ok()) {
    return added->Refuse(MessageOf(status));
  }
  shared_->poller.WakeBy(deadline);
}

void Listener::RefuseForWantOfDescriptors() {
  spare_.Close();
  Socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  spare_ = OpenSpare();
  LogRefusal("somebody", "this process has no file descriptors left (ulimit -n)");
}

void Listener::LogRefusal(const std::string& from, std::string_view why) {
  if (!refusals_.HasRoom()) return;
  Log(LogLevel::kWarning, "rank {} ({}, tcp) refused a connection from {}: {}",
      shared_->options.rank, endpoint_, from, why);
}

void Listener::CheckDeadlines(int64_t now) {
  for (const auto& pending : pending_) {
    if (pending->over()) continue;
    if (now < pending->deadline()) return shared_->poller.WakeBy(pending->deadline());
    pending->Refuse(fmt::format("no handshake within {} s", shared_->options.connect_seconds));
  }
}

void Listener::Sweep() {
  std::erase_if(pending_, [](const auto& pending) { return pending->over(); });
}

}  // namespace tutti::net::tcp
