// How a link is opened: the part of StreamLink up to that point.
//
//   connecting side                            accepting side
//   handshake (purpose: link)    <------->     handshake, at the port
//   hello                        <------->     hello
//   open                         -------->                              the link stands on TCP
// or, where the hellos name the same host,
//   packet with the secret of the accepting side's hello, and one end of a pair of Unix sockets
//                                -------->     at its joining socket
//   open, on the pair            -------->                              the link stands on the pair
//
// Either side may have made the connection; when both do, the one of the side with the smaller
// (task, incarnation) stays (tutti/net/link/links.cc).
#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/net/link/joining.h"
#include "tutti/net/link/stream_link.h"
#include "tutti/net/token.h"

namespace tutti::net::link {
namespace {

bool IsNumeric(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

// Dialling ---------------------------------------------------------------------------------------

void StreamLink::StartDialing() {
  if (state() == State::kBroken) return;
  state_ = State::kOpening;
  if (dial_deadline_ == 0) {
    dial_deadline_ = NowNanos() + static_cast<int64_t>(context_->options.connect_seconds * 1e9);
  }
  Identity own = context_->options.identity;
  own.purpose = Identity::Purpose::kLink;
  dial_ = std::make_unique<Dial>(Dial::Options{.address = address_,
                                               .own = std::move(own),
                                               .expected_task = task_,
                                               .deadline_nanos = dial_deadline_});
  DriveDial();
}

void StreamLink::DriveDial() {
  const auto self = shared_from_this();
  ++dial_round_;
  while (dial_ != nullptr && dial_->wants_lookup()) {
    if (!IsNumeric(dial_->endpoint().host)) return Lookup();
    dial_->LookedUp(Resolve(dial_->endpoint()));
  }
  if (dial_ == nullptr) return;
  dial_in_handshake_ = dial_->in_handshake();
  if (dial_->Open()) return WatchDial();
  const std::unique_ptr<Dial> dial = std::move(dial_);
  dial_in_handshake_ = false;
  if (!dial->status().ok()) return Break(dial->status());
  Connected(dial->peer(), dial->TakeSocket(), /*dialled=*/true);
}

// Asks the name service on a thread of its own, which may take seconds.
void StreamLink::Lookup() {
  auto ask = [link = weak_from_this(), context = context_, round = dial_round_,
              endpoint = dial_->endpoint()] {
    auto addresses = std::make_shared<absl::StatusOr<std::vector<Address>>>(Resolve(endpoint));
    context->loop->Post([link, round, addresses] {
      const auto self = link.lock();
      if (self == nullptr || self->dial_ == nullptr || self->dial_round_ != round) return;
      self->dial_->LookedUp(std::move(*addresses));
      self->DriveDial();
    });
  };
  absl::StatusOr<std::thread> thread = StartThread("the lookup of a name", std::move(ask));
  if (!thread.ok()) return Break(WithPrefix(thread.status(), Named("")));
  thread->detach();
}

// The next event or time drives the dial on. What is watched is forgotten first: the dial closes
// its socket when an attempt fails.
void StreamLink::WatchDial() {
  const auto go_on = [this, round = dial_round_] {
    if (dial_ == nullptr || dial_round_ != round) return;
    if (dial_watch_ != 0) context_->loop->Forget(std::exchange(dial_watch_, 0));
    dial_->Step();
    DriveDial();
  };
  if (dial_->fd() >= 0) {
    const absl::StatusOr<uint64_t> watch =
        context_->loop->Watch(dial_->fd(), static_cast<uint32_t>(dial_->events()),
                              [self = shared_from_this(), go_on](uint32_t) { go_on(); });
    if (!watch.ok()) return Break(WithPrefix(watch.status(), Named("")));
    dial_watch_ = *watch;
  }
  context_->loop->After(dial_->wake_at() - NowNanos(),
                        [self = shared_from_this(), go_on] { go_on(); });
}

// Hello ------------------------------------------------------------------------------------------

void StreamLink::SetSocket(Socket socket) {
  DropSocket();
  const auto self = shared_from_this();
  const absl::StatusOr<uint64_t> watch = context_->loop->Watch(
      socket.fd(), EPOLLIN, [self](uint32_t events) { self->OnEvents(events); });
  if (!watch.ok()) return Break(WithPrefix(watch.status(), Named("")));
  watch_ = *watch;
  last_heard_ = NowNanos();
  const std::lock_guard lock(mutex_);
  wanted_ = EPOLLIN;
  socket_ = std::move(socket);
}

void StreamLink::DropSocket() {
  if (watch_ != 0) context_->loop->Forget(std::exchange(watch_, 0));
  left_.Close();
  Socket old;
  {
    const std::lock_guard lock(mutex_);
    old = std::move(socket_);
    wanted_ = 0;
  }
  CloseGently(std::move(old));
}

void StreamLink::Connected(const Identity& peer, Socket socket, bool dialled) {
  dial_.reset();
  ++dial_round_;
  dial_in_handshake_ = false;
  if (dial_watch_ != 0) context_->loop->Forget(std::exchange(dial_watch_, 0));
  const TaskIdentity answered = {.task = peer.task, .incarnation = peer.incarnation};
  const uint64_t expected = expected_;
  if (expected != 0 && expected != answered.incarnation) {
    return Break(Aborted("{}", Named(fmt::format("it restarted: incarnation {} answered, {} was "
                                                 "expected",
                                                 answered.incarnation, expected))));
  }
  if (const absl::Status status = context_->check(answered); !status.ok()) {
    return Break(WithPrefix(status, Named("")));
  }
  const auto silence = static_cast<unsigned>(context_->options.silence_seconds * 1e3);
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof(silence));
  expected_ = answered.incarnation;
  if (peer_.load() == &unknown_) {
    known_ = answered;
    peer_.store(&known_, std::memory_order_release);
  }
  dialled_ = dialled;
  secret_ = MakeNonce();
  peer_window_ = 0;
  early_.Close();
  inbox_.Reset();
  SetSocket(std::move(socket));
  if (state() == State::kBroken) return;
  state_ = State::kHello;
  {
    const std::lock_guard lock(mutex_);
    outbox_.Restart();
    outbox_.SendControl(FrameKind::kHello, 0,
                        EncodeHello({.window = context_->options.window_bytes,
                                     .host = context_->host,
                                     .socket = context_->joining_socket,
                                     .secret = secret_}));
  }
  Flush();
}

absl::Status StreamLink::OnHello(std::string_view text) {
  if (state() != State::kHello || peer_window_ != 0) {
    return InvalidArgument("a hello at the wrong time");
  }
  TUTTI_ASSIGN_OR_RETURN(const Hello hello, ParseHello(text));
  peer_window_ = hello.window;
  one_host_ = context_->host == hello.host;
  if (!dialled_) {
    if (early_.valid()) {
      // Not at once: the connection that it replaces is being read.
      context_->loop->Post([self = shared_from_this()] { self->Joined(std::move(self->early_)); });
    }
    return absl::OkStatus();
  }
  const bool both_join = !context_->joining_socket.empty() && !hello.socket.empty();
  const bool joined = one_host_ && both_join && TryToJoin(hello);
  {
    const std::lock_guard lock(mutex_);
    outbox_.SendControl(FrameKind::kOpen);
  }
  Opened(joined);
  return absl::OkStatus();
}

// The connection stays until the link's end: the peer may look at it after this side has left it.
bool StreamLink::TryToJoin(const Hello& hello) {
  absl::StatusOr<Socket> joined = JoinAt(hello.socket, hello.secret);
  if (!joined.ok()) return false;
  if (watch_ != 0) context_->loop->Forget(std::exchange(watch_, 0));
  Socket old;
  {
    const std::lock_guard lock(mutex_);
    old = std::move(socket_);
  }
  SetSocket(*std::move(joined));
  left_ = std::move(old);
  return true;
}

// The packet comes over another socket than the hello before it, and may overtake it on a busy
// host.
void StreamLink::Joined(Socket socket) {
  if (state() != State::kHello || dialled_ || !socket.valid()) return;
  if (peer_window_ == 0) {
    early_ = std::move(socket);
    return;
  }
  SetSocket(std::move(socket));
  memory_ = true;
  inbox_.ExpectFiles();
}

void StreamLink::Opened(bool memory) {
  memory_ = memory;
  inbox_.Open(memory);
  {
    const std::lock_guard lock(mutex_);
    state_ = State::kOpen;
    outbox_.Open({.window = peer_window_,
                  .checksums = context_->options.checksums && !one_host_,
                  .memory = memory ? context_->memory : nullptr});
    PostFlush();
  }
}

}  // namespace tutti::net::link
