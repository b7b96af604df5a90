// Rank 0's star.
//
// All state lives on the loop's thread. star_hub_start.cc admits the ranks, star_hub_calls.cc has
// their calls; this file decides about failures. A closed connection means that the rank died, no
// bytes for silence_seconds that it is silent. A rank that only lost a data link reports that, and
// rank 0 waits a moment for a better explanation before it accepts the report as the cause: the
// process at the other end of a broken link is usually dead, and its control connection shows it.
// The first cause is sent to all ranks and never changed, so all ranks give the same reason.
#include "tutti/net/coordination/star_hub.h"

#include <fmt/core.h>
#include <poll.h>

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {

using Type = ControlMessage::Type;

void StarHub::SendToAll(const ControlMessage& message) {
  const auto encoded = std::make_shared<const std::string>(Encode(message));
  for (const Peer& peer : peers_) {
    if (peer.link == nullptr) continue;
    // What is sent again and again is left out for who is slow to read; the rest must arrive.
    const bool repeated = message.type == Type::kHeartbeat || message.type == Type::kWaiting;
    if (!repeated || peer.link->idle()) peer.link->Send(encoded);
  }
}

void StarHub::OnMessage(int rank, ControlMessage message) {
  const bool status_follows = message.type == Type::kLost || message.type == Type::kFailure ||
                              message.type == Type::kVerdict;
  if (status_follows &&
      (message.code == absl::StatusCode::kOk || message.rank < kNoRank || message.rank >= size())) {
    return OnBad(rank, InvalidArgument("code {} and rank {} in a report",
                                       static_cast<int>(message.code), message.rank));
  }
  switch (message.type) {
    case Type::kHeartbeat:
      if (message.counters.size() == 1) SetProgressOf(rank, message.counters[0]);
      return;
    case Type::kCall:
      return TakePart(rank, std::move(message));
    case Type::kLost:
      if (message.rank != kNoRank) Lost(rank, message.rank, message.status());
      return;
    case Type::kFailure:
      return Decide(kNoRank, message.status());
    case Type::kVerdict:  // it had not heard from here for too long, and judged by itself
      return Decide(message.rank, message.status());
    case Type::kLeave:
      return OnLeave(rank);
    default:
      return OnBad(rank,
                   InvalidArgument("type {} is not for rank 0", static_cast<int>(message.type)));
  }
}

void StarHub::OnBad(int rank, const absl::Status& why) {
  peer(rank).presence = Presence::kDead;
  Decide(rank, DataLoss("{} sent a broken control message: {}", Name(rank), MessageOf(why)));
  peer(rank).link.reset();
}

void StarHub::OnClosed(int rank, const std::string& how) {
  peer(rank).link.reset();
  if (!complete_) {
    // It may be started again.
    peer(rank).presence = Presence::kAbsent;
    peer(rank).trouble =
        fmt::format("had connected ({}), but {}", places_[static_cast<size_t>(rank)], how);
    places_[static_cast<size_t>(rank)].clear();
    return;
  }
  peer(rank).presence = Presence::kDead;
  Decide(rank, Died(rank, how));
}

void StarHub::OnLeave(int rank) {
  if (!complete_) return OnClosed(rank, "it left");
  peer(rank).presence = Presence::kLeft;
  peer(rank).link.reset();
  if (left_rank_ < 0) left_rank_ = rank;
  ControlMessage left;
  left.type = Type::kLeft;
  left.rank = rank;
  SendToAll(left);
  // A verdict answers the open call already, with the reason why this rank leaves.
  if (!concluded()) FailOpenCall(LeftStatus(rank));
  TellLeft(rank);
}

void StarHub::Tick() {
  const int64_t now = loop().now();
  for (int rank = 1; rank < size(); ++rank) {
    const Peer& spoke = peer(rank);
    if (spoke.link != nullptr && now - spoke.link->last_heard() > patience_nanos()) {
      Decide(rank, Silent(rank, now - spoke.link->last_heard()));
    }
  }
  ControlMessage heartbeat;
  heartbeat.type = Type::kHeartbeat;
  heartbeat.counters = Progress();
  SendToAll(heartbeat);
  WarnOfLateCall();
  loop().After(heartbeat_nanos(), [this] { Tick(); });
}

void StarHub::Decide(int rank, const absl::Status& status) {
  if (concluded()) return;
  SendToAll(ControlMessage::Of(Type::kVerdict, rank, status));
  Conclude(rank, status);
}

void StarHub::Lost(int by, int rank, const absl::Status& status) {
  if (peer(rank).presence == Presence::kLeft) return Decide(rank, LeftStatus(rank));
  const absl::Status report =
      WithPrefix(status, fmt::format("rank {} lost its link to {}: ", by, Name(rank)));
  // One end of a link knows why it was given up, the other only that it is gone.
  const bool end = absl::IsUnavailable(report) || absl::IsDeadlineExceeded(report);
  if (!end && reason_.second.ok()) reason_ = {rank, report};
  loop().After(kLostGraceNanos, [this, rank, report] {
    if (!reason_.second.ok()) return Decide(reason_.first, reason_.second);
    Decide(rank, peer(rank).presence == Presence::kLeft ? LeftStatus(rank) : report);
  });
}

void StarHub::HandleLost(int rank, const absl::Status& status) { Lost(0, rank, status); }

void StarHub::HandleFailure(const absl::Status& status) { Decide(kNoRank, status); }

StarHub::~StarHub() {
  loop().Stop([this] { Farewell(); });
}

void StarHub::Farewell() {
  if (meeting_.has_value()) RemoveMeetingFile(options().file, *meeting_);
  door_.reset();
  ControlMessage leave;
  leave.type = Type::kLeave;
  SendToAll(leave);
  const int64_t deadline = NowNanos() + kFarewellNanos;
  while (NowNanos() < deadline) {
    std::vector<pollfd> waiting;
    for (const Peer& peer : peers_) {
      if (peer.link == nullptr || peer.link->idle()) continue;
      waiting.push_back({peer.link->fd(), POLLOUT, 0});
    }
    if (waiting.empty()) break;
    poll(waiting.data(), waiting.size(), 5);
    for (const Peer& peer : peers_) {
      if (peer.link != nullptr) peer.link->Flush();
    }
  }
  for (Peer& peer : peers_) peer.link.reset();
}

}  // namespace tutti::net
