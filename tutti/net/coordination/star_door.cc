#include "tutti/net/coordination/star_door.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr int64_t kSweepNanos = 100'000'000;
constexpr int kAcceptsPerRound = 64;

}  // namespace

StarDoor::StarDoor(EventLoop* loop, const Identity& own, Socket listener, Callbacks callbacks)
    : loop_(loop), own_(own), listener_(std::move(listener)), callbacks_(std::move(callbacks)) {}

StarDoor::~StarDoor() {
  loop_->Forget(watch_);
  for (const Arrival& arrival : arrivals_) loop_->Forget(arrival.watch);
}

absl::Status StarDoor::Open() {
  absl::StatusOr<uint64_t> watch =
      loop_->Watch(listener_.fd(), EPOLLIN, [this](uint32_t) { Accept(); });
  if (!watch.ok()) return watch.status();
  watch_ = *watch;
  Sweep();
  return absl::OkStatus();
}

void StarDoor::Serve(Identity::Purpose purpose, Service service) {
  services_[purpose] = std::move(service);
}

Refusal StarDoor::Admit(const Identity& peer, std::string* why) const {
  if (peer.purpose == Identity::Purpose::kControl) return callbacks_.admit(peer, why);
  const auto found = services_.find(peer.purpose);
  if (found == services_.end()) {
    *why = fmt::format("connection is for {}, which rank 0 does not take", NameOf(peer.purpose));
    return Refusal::kPurpose;
  }
  if (peer.size != own_.size) {
    *why = fmt::format("job of {} ranks, expected {}", peer.size, own_.size);
    return Refusal::kSize;
  }
  return found->second.admit == nullptr ? Refusal::kNone : found->second.admit(peer, why);
}

void StarDoor::Sweep() {
  const int64_t now = NowNanos();
  while (!arrivals_.empty() && arrivals_.front().deadline <= now) {
    Refuse(arrivals_.begin(), "it did not finish joining within 5 s");
  }
  loop_->Change(watch_, EPOLLIN);  // accepts again after a lack of descriptors
  loop_->After(kSweepNanos, [this] { Sweep(); });
}

void StarDoor::Accept() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      AcceptOne(std::move(socket));
      continue;
    }
    const int error = errno;
    const bool exhausted =
        error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (error == EAGAIN || error == EWOULDBLOCK) return;
    if (!exhausted) continue;  // that connection is gone already
    callbacks_.exhausted(error);
    if (!arrivals_.empty()) {
      Refuse(arrivals_.begin(), "too many open files, and it was the oldest of those that wait");
      continue;
    }
    loop_->Change(watch_, 0);  // the next sweep looks again; until then nothing spins
    return;
  }
}

void StarDoor::AcceptOne(Socket socket) {
  const absl::StatusOr<Address> peer = PeerAddress(socket.fd());
  if (!peer.ok()) return;
  SetNoDelay(socket.fd());
  if (arrivals_.size() >= kMaxArrivals) {
    Refuse(arrivals_.begin(), "too many connections wait, and it was the oldest");
  }
  arrivals_.push_back({.socket = std::move(socket),
                       .watch = 0,
                       .handshake = Handshake(own_, /*connecting=*/false, -1,
                                              [this](const Identity& peer, std::string* why) {
                                                return Admit(peer, why);
                                              }),
                       .link = nullptr,
                       .deadline = NowNanos() + kArrivalNanos,
                       .from = ToString(*peer),
                       .host = peer->host()});
  const Place arrival = std::prev(arrivals_.end());
  absl::StatusOr<uint64_t> watch =
      loop_->Watch(arrival->socket.fd(), EPOLLIN, [this, arrival](uint32_t) { OnEvents(arrival); });
  if (!watch.ok()) return Refuse(arrival, MessageOf(watch.status()));
  arrival->watch = *watch;
}

void StarDoor::OnEvents(Place arrival) {
  Handshake& handshake = arrival->handshake;
  std::array<std::byte, 1024> piece;
  while (handshake.state() == Handshake::State::kMore) {
    const size_t wanted = std::min(handshake.Wants(), piece.size());
    const IoResult result = ReadSome(arrival->socket.fd(), std::span(piece).first(wanted));
    if (result.kind == IoResult::Kind::kAgain) return;
    if (result.kind != IoResult::Kind::kMoved) {
      return Refuse(arrival, "it closed the connection in the handshake");
    }
    std::string out;
    size_t consumed = 0;
    handshake.Feed(std::span(piece).first(result.bytes), &consumed, &out);
    // An answer is some hundred bytes and the socket has sent nothing else: it takes them, or the
    // peer is no peer.
    const IoResult sent = WriteSome(arrival->socket.fd(), out);
    if (handshake.state() != Handshake::State::kFailed && sent.bytes != out.size()) {
      return Refuse(arrival, "it does not read the handshake's answers");
    }
  }
  if (handshake.state() == Handshake::State::kFailed) {
    return Refuse(arrival, MessageOf(handshake.status()));
  }
  AfterHandshake(arrival);
}

void StarDoor::AfterHandshake(Place arrival) {
  loop_->Forget(arrival->watch);
  const Identity& peer = arrival->handshake.peer();
  if (peer.purpose != Identity::Purpose::kControl) {
    services_.at(peer.purpose).handler(peer, std::move(arrival->socket));
    arrivals_.erase(arrival);
    return;
  }
  arrival->link = std::make_unique<ControlLink>(loop_, std::move(arrival->socket),
                                                ControlReader(kMaxJoinBytes));
  const absl::Status opened = arrival->link->Open(
      {.message = [this, arrival](ControlMessage message) { Join(arrival, message); },
       .bad = [this, arrival](const absl::Status& why) { Refuse(arrival, MessageOf(why)); },
       .closed =
           [this, arrival](const std::string&) {
             Refuse(arrival, "it closed the connection before it joined");
           }});
  if (!opened.ok()) Refuse(arrival, MessageOf(opened));
}

void StarDoor::Join(Place arrival, const ControlMessage& message) {
  if (message.type != ControlMessage::Type::kJoin) {
    return Refuse(arrival, fmt::format("its first message is of type {}, expected {}",
                                       static_cast<int>(message.type),
                                       static_cast<int>(ControlMessage::Type::kJoin)));
  }
  const absl::Status joined =
      callbacks_.join(arrival->handshake.peer(), arrival->host, message, &arrival->link);
  if (joined.ok()) {
    arrivals_.erase(arrival);
    return;
  }
  arrival->link->Send(ControlMessage::Of(ControlMessage::Type::kRefused, kNoRank, joined));
  Refuse(arrival, MessageOf(joined));
}

void StarDoor::Refuse(Place arrival, std::string_view why) {
  LogRefusal(*arrival, why);
  const Handshake& handshake = arrival->handshake;
  const bool named =
      handshake.peer_known() && handshake.peer().rank >= 0 && handshake.peer().rank < own_.size;
  callbacks_.refused(named ? handshake.peer().rank : kNoRank,
                     fmt::format("{} ({})", why, arrival->from));
  loop_->Forget(arrival->watch);
  CloseGently(std::move(arrival->socket));
  arrivals_.erase(arrival);
}

void StarDoor::LogRefusal(const Arrival& arrival, std::string_view why) {
  if (!refusals_.HasRoom()) return;
  const std::string who =
      arrival.handshake.peer_known()
          ? fmt::format(", which says that it is rank {} of job '{}'",
                        arrival.handshake.peer().rank, Printable(arrival.handshake.peer().job))
          : "";
  Log(LogLevel::kWarning, "refused a connection from {}{}: {}", arrival.from, who, why);
}

}  // namespace tutti::net
