#include "tutti/net/memory/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/memory/copies.h"
#include "tutti/net/memory/link.h"

namespace tutti::net::memory {

absl::Status Staging::Add(uint64_t receive, ConstBytes data, Request* request) {
  sends_.push_back({.receive = receive, .data = data, .request = request});
  if (memory_ == nullptr) {
    TUTTI_ASSIGN_OR_RETURN(memory_, space_->Allocate(kPieceSlots * kPieceBytes));
  }
  return absl::OkStatus();
}

bool Staging::Stream(Link& link) {
  bool moved = false;
  while (!sends_.empty() && link.queue_empty()) {
    const auto slot = std::find(used_.begin(), used_.end(), false);
    if (slot == used_.end()) break;
    const uint32_t number = static_cast<uint32_t>(slot - used_.begin());
    Sending& send = sends_.front();
    const size_t bytes = std::min(kPieceBytes, send.data.size() - send.sent);
    if (bytes > 0) {
      std::memcpy(memory_->bytes().data() + number * kPieceBytes, send.data.data() + send.sent,
                  bytes);
    }
    *slot = true;
    const MemoryKey key = memory_->key();
    link.SendStruct(CellKind::kPiece,
                    Piece{.receive = send.receive,
                          .at = send.sent,
                          .offset = key.offset + number * kPieceBytes,
                          .region = key.region,
                          .slot_and_bytes = (number << 24) | static_cast<uint32_t>(bytes)});
    send.sent += bytes;
    moved = true;
    if (send.sent < send.data.size()) continue;
    Request* request = send.request;
    sends_.pop_front();
    request->Done(absl::OkStatus());
  }
  return moved;
}

absl::Status Staging::OnTaken(const Taken& taken) {
  if (taken.slot >= kPieceSlots || !used_[taken.slot]) {
    return DataLoss("it took slot {} of the staging memory, which it was not given", taken.slot);
  }
  used_[taken.slot] = false;
  return absl::OkStatus();
}

absl::Status Staging::OnPiece(Link& link, const Piece& piece) {
  message::Receiver& receiver = link.engine().receiver;
  message::OpenReceive* receive = receiver.Find(piece.receive);
  const size_t bytes = piece.slot_and_bytes & 0xffffff;
  if (receive == nullptr) {
    return DataLoss("it sent a piece for receive {}, which does not wait for one", piece.receive);
  }
  // An empty message is one empty piece.
  const size_t left = receive->bytes - receive->received;
  if (piece.at != receive->received || bytes > left || (bytes == 0 && left > 0) ||
      (bytes < left && bytes % 64 != 0)) {
    return DataLoss("it sent bytes {} to {} of a message; {} of {} had arrived", piece.at,
                    piece.at + bytes, receive->received, receive->bytes);
  }
  const MemoryKey key{.region = piece.region, .offset = piece.offset};
  TUTTI_ASSIGN_OR_RETURN(const std::byte* from, space_->Map(link.peer(), key, bytes));
  Deliver(from, receive->destination, receive->received, bytes, receive->request);
  receive->begun = true;
  receive->received += bytes;
  link.SendStruct(CellKind::kTaken, Taken{.slot = piece.slot_and_bytes >> 24});
  if (bytes < left) return absl::OkStatus();
  return receiver.Complete(receive, /*offered=*/true);
}

void Staging::Drop(const absl::Status& status) {
  for (const Sending& send : std::exchange(sends_, {})) send.request->Done(status);
}

}  // namespace tutti::net::memory
