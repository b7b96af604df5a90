#include "tutti/net/memory/sender.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/status.h"

namespace tutti::net::memory {

void Sender::SendOffer(Link& link, Tag tag, ConstBytes data, Request* request) {
  MemoryKey key = space_->KeyOf(data.data(), data.size());
  if (key.region == 0) key = space_->Expose(data.data());
  const uint64_t id = pending_.Add({.peer = link.peer(),
                                    .tag = tag,
                                    .data = data,
                                    .request = request,
                                    .staged = key.region == 0});
  const Offer offer{.bytes = data.size(), .send = id, .offset = key.offset, .region = key.region};
  link.SendCopy(CellKind::kOffer, tag, std::as_bytes(std::span(&offer, 1)));
}

absl::Status Sender::OnGrant(Link& link, const Grant& grant) {
  Pending* send = pending_.Find(grant.send);
  if (send == nullptr || send->peer != link.peer() || !send->staged || send->receive != 0 ||
      grant.receive == 0) {
    return DataLoss("it granted send {:#x}, which does not wait for that", grant.send);
  }
  if (link.staging == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(link.staging, space_->Allocate(kPieceSlots * kPieceBytes));
  }
  send->receive = grant.receive;
  link.streaming.push_back(grant.send);
  return absl::OkStatus();
}

absl::Status Sender::OnTaken(Link& link, const Taken& taken) {
  if (taken.slot >= kPieceSlots || !link.slot_used[taken.slot]) {
    return DataLoss("it took slot {} of the staging memory, which it was not given", taken.slot);
  }
  link.slot_used[taken.slot] = false;
  return absl::OkStatus();
}

absl::Status Sender::OnAck(Link& link, const Ack& ack) {
  Pending* send = pending_.Find(ack.send);
  // A refusal may come for either kind, before anything was granted.
  if (send == nullptr || send->peer != link.peer() || send->receive != 0 ||
      (send->staged && ack.refused == 0)) {
    return DataLoss("it acknowledged send {:#x}, which does not wait for that", ack.send);
  }
  const Pending done = pending_.Take(ack.send);
  if (ack.refused == 0) {
    done.request->Done(absl::OkStatus());
  } else {
    done.request->Done(InvalidArgument(
        "message {} of operation {} to rank {}: {} bytes were sent, {} are expected there",
        done.tag.index, done.tag.operation, done.peer, done.data.size(), ack.expected));
  }
  return absl::OkStatus();
}

absl::Status Sender::OnRead(Link& link, const Read& read) {
  if (link.ahead.OnTaken(read.taken)) return absl::OkStatus();
  return DataLoss("it has taken {} bytes of messages, which were not sent", read.taken);
}

bool Sender::Stream(Link& link) {
  bool moved = false;
  while (!link.streaming.empty() && link.queue_empty()) {
    const auto slot = std::find(link.slot_used.begin(), link.slot_used.end(), false);
    if (slot == link.slot_used.end()) break;
    const uint32_t number = static_cast<uint32_t>(slot - link.slot_used.begin());
    const uint64_t id = link.streaming.front();
    Pending& send = *pending_.Find(id);
    const size_t bytes = std::min(kPieceBytes, send.data.size() - send.sent);
    std::memcpy(link.staging->bytes().data() + number * kPieceBytes, send.data.data() + send.sent,
                bytes);
    *slot = true;
    const MemoryKey key = link.staging->key();
    link.SendStruct(CellKind::kPiece,
                    Piece{.receive = send.receive,
                          .at = send.sent,
                          .offset = key.offset + number * kPieceBytes,
                          .region = key.region,
                          .slot_and_bytes = (number << 24) | static_cast<uint32_t>(bytes)});
    send.sent += bytes;
    moved = true;
    if (send.sent < send.data.size()) continue;
    link.streaming.pop_front();
    pending_.Take(id).request->Done(absl::OkStatus());
  }
  return moved;
}

bool Sender::HasOpen(int peer) const {
  return pending_.Any([&](const Pending& send) { return send.peer == peer; });
}

void Sender::Drop(Link& link, const absl::Status& status) {
  link.streaming.clear();
  pending_.TakeIf([&](const Pending& send) { return send.peer == link.peer(); },
                  [&](const Pending& send) { send.request->Done(status); });
}

}  // namespace tutti::net::memory
