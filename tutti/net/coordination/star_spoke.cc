// The star of a rank other than 0. After the start it sends heartbeats, and passes messages from
// rank 0 to the calls that wait for them. The only failure that it decides by itself is the loss of
// rank 0.
//
// All that has arrived is read before the end of the connection counts, so a verdict that rank 0
// sent before it went is not lost.
#include "tutti/net/coordination/star_spoke.h"

#include <fmt/core.h>
#include <poll.h>

#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {

using Type = ControlMessage::Type;

absl::Status StarSpoke::Begin(Socket socket, ControlReader reader,
                              std::vector<std::string> places) {
  if (places.size() != static_cast<size_t>(size())) {
    return Internal("rank 0 welcomes {} ranks, expected {}", places.size(), size());
  }
  places_ = std::move(places);
  left_.resize(static_cast<size_t>(size()));
  TUTTI_ASSIGN_OR_RETURN(const Address local, LocalAddress(socket.fd()));
  own_address_ = local.host();
  link_ = std::make_unique<ControlLink>(&loop(), std::move(socket), std::move(reader));
  TUTTI_RETURN_IF_ERROR(link_->Open(
      {.message = [this](ControlMessage message) { OnMessage(std::move(message)); },
       .bad =
           [this](const absl::Status& why) {
             CutOff(DataLoss("{} sent a broken control message: {}", Name(0), MessageOf(why)));
           },
       .closed = [this](const std::string& how) { CutOff(Died(0, how)); }}));
  loop().Post([this] {
    Tick();
    if (link_ != nullptr) link_->DeliverHeld();
  });
  const absl::Status started = loop().Start();
  // Rank 0 has welcomed this rank, so it and all others are told why it goes.
  if (!started.ok()) {
    link_->Send(ControlMessage::Of(Type::kFailure, kNoRank,
                                   WithPrefix(started, fmt::format("rank {}: ", rank()))));
  }
  return started;
}

void StarSpoke::Serve(Identity::Purpose /*purpose*/, Handler /*handler*/,
                      Handshake::Admit /*admit*/) {
  TUTTI_CHECK(!port().empty());  // it has none
}

void StarSpoke::OnMessage(ControlMessage message) {
  const bool rank_fits = message.rank >= 0 && message.rank < size();
  switch (message.type) {
    case Type::kHeartbeat:
      for (int r = 0; r < size() && static_cast<size_t>(r) < message.counters.size(); ++r) {
        if (r != rank()) SetProgressOf(r, message.counters[static_cast<size_t>(r)]);
      }
      return;
    case Type::kResult:
      if (message.number == open_call_) open_call_ = 0;
      return FinishCall(std::move(message));
    case Type::kVerdict:
      if (message.code == absl::StatusCode::kOk || (!rank_fits && message.rank != kNoRank)) break;
      return Conclude(message.rank, message.status());
    case Type::kLeft:
      if (!rank_fits) break;
      left_[static_cast<size_t>(message.rank)] = true;
      return TellLeft(message.rank);
    case Type::kLeave:
      return OnHubLeft();
    default:
      break;
  }
  CutOff(DataLoss("{} sent a control message that makes no sense: type {}, rank {}", Name(0),
                  static_cast<int>(message.type), message.rank));
}

void StarSpoke::OnHubLeft() {
  left_[0] = true;
  link_.reset();
  if (open_call_ != 0) {
    ControlMessage result = ControlMessage::Of(Type::kResult, 0, LeftStatus(0));
    result.number = std::exchange(open_call_, 0);
    FinishCall(std::move(result));
  }
  TellLeft(0);
}

void StarSpoke::CutOff(const absl::Status& status) {
  link_.reset();
  Conclude(0, status);
}

void StarSpoke::Tick() {
  if (link_ == nullptr) return;
  if (!concluded() && loop().now() - link_->last_heard() > patience_nanos()) {
    const absl::Status silent = Silent(0, loop().now() - link_->last_heard());
    // If it wakes up, it shall give the same reason.
    link_->Send(ControlMessage::Of(Type::kVerdict, 0, silent));
    Conclude(0, silent);
  }
  if (link_->idle()) {
    ControlMessage heartbeat;
    heartbeat.type = Type::kHeartbeat;
    heartbeat.counters = {own_progress()};
    link_->Send(heartbeat);
  }
  loop().After(heartbeat_nanos(), [this] { Tick(); });
}

void StarSpoke::SendCall(ControlMessage part) {
  if (link_ != nullptr) {
    open_call_ = part.number;
    link_->Send(part);
    return;
  }
  ControlMessage result = ControlMessage::Of(Type::kResult, 0, LeftStatus(0));
  result.number = part.number;
  FinishCall(std::move(result));
}

void StarSpoke::ConcludeSoon(int rank, const absl::Status& status) {
  if (link_ == nullptr) return Conclude(rank, status);
  loop().After(kVerdictWaitNanos, [this, rank, status] { Conclude(rank, status); });
}

void StarSpoke::HandleLost(int rank, const absl::Status& status) {
  if (concluded()) return;
  if (link_ != nullptr) link_->Send(ControlMessage::Of(Type::kLost, rank, status));
  ConcludeSoon(rank, left_[static_cast<size_t>(rank)] ? LeftStatus(rank) : status);
}

void StarSpoke::HandleFailure(const absl::Status& status) {
  if (concluded()) return;
  if (link_ != nullptr) link_->Send(ControlMessage::Of(Type::kFailure, kNoRank, status));
  ConcludeSoon(kNoRank, status);
}

StarSpoke::~StarSpoke() {
  loop().Stop([this] { Farewell(); });
}

void StarSpoke::Farewell() {
  if (link_ == nullptr) return;
  ControlMessage leave;
  leave.type = Type::kLeave;
  link_->Send(leave);
  const int64_t deadline = NowNanos() + kFarewellNanos;
  while (!link_->idle() && WaitFor(link_->fd(), POLLOUT, deadline).ok()) link_->Flush();
  link_.reset();
}

}  // namespace tutti::net
