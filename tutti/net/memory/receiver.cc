#include "tutti/net/memory/receiver.h"

#include <utility>

#include "tutti/base/status.h"

namespace tutti::net::memory {
namespace {

absl::Status WrongLength(const Link& link, Tag tag, size_t expected, size_t sent) {
  return InvalidArgument(
      "message {} of operation {} from rank {}: {} bytes are expected, {} were sent", tag.index,
      tag.operation, link.peer(), expected, sent);
}

}  // namespace

absl::Status Receiver::Receive(Link& link, Tag tag, std::byte* destination, size_t bytes,
                               Request* request) {
  const Posted posted{.destination = destination, .bytes = bytes, .request = request};
  Arrived arrived;
  if (!arrived_.Take(link.peer(), tag, &arrived)) {
    posted_.Add(link.peer(), tag, posted);
    return absl::OkStatus();
  }
  if (arrived.copy == nullptr) {
    if (link.left.ok()) return Accept(link, tag, posted, arrived.offer);
    // It did not wait until its message was read: the link ends, and this Receive with it.
    posted_.Add(link.peer(), tag, posted);
    return link.left;
  }
  const size_t sent = arrived.offer.bytes;
  NoteTaken(link, sent);
  if (sent == bytes) Deliver(arrived.copy.get(), destination, 0, bytes, request);
  stash_.Release(std::move(arrived.copy), sent);
  request->Done(sent == bytes ? absl::OkStatus() : WrongLength(link, tag, bytes, sent));
  return absl::OkStatus();
}

// Empty messages are not counted: they always go at once.
void Receiver::NoteTaken(Link& link, size_t bytes) {
  if (bytes > 0 && link.taken.OnTaken(bytes)) {
    link.SendStruct(CellKind::kRead, Read{.taken = link.taken.taken()});
  }
}

absl::Status Receiver::OnEager(Link& link, Tag tag, ConstBytes payload) {
  Posted posted;
  if (posted_.Take(link.peer(), tag, &posted)) {
    NoteTaken(link, payload.size());
    if (posted.bytes != payload.size()) {
      posted.request->Done(WrongLength(link, tag, posted.bytes, payload.size()));
      return absl::OkStatus();
    }
    Deliver(payload.data(), posted.destination, 0, posted.bytes, posted.request);
    posted.request->Done(absl::OkStatus());
    return absl::OkStatus();
  }
  Stash::Buffer copy = stash_.Keep(payload);
  if (copy == nullptr) {
    return ResourceExhausted(
        "{} MB of messages came before they were asked for; message {} of operation {} does not "
        "fit",
        Stash::kMostBytes >> 20, tag.index, tag.operation);
  }
  arrived_.Add(link.peer(), tag, {.copy = std::move(copy), .offer = {.bytes = payload.size()}});
  return absl::OkStatus();
}

absl::Status Receiver::OnOffer(Link& link, Tag tag, const Offer& offer) {
  Posted posted;
  if (posted_.Take(link.peer(), tag, &posted)) return Accept(link, tag, posted, offer);
  if (arrived_.size() >= kMostOffers) {
    return ResourceExhausted("{} messages wait for their Receive", arrived_.size());
  }
  arrived_.Add(link.peer(), tag, {.copy = nullptr, .offer = offer});
  return absl::OkStatus();
}

absl::Status Receiver::Accept(Link& link, Tag tag, const Posted& posted, const Offer& offer) {
  if (offer.bytes != posted.bytes) {
    link.SendStruct(CellKind::kAck,
                    Ack{.send = offer.send, .refused = 1, .expected = posted.bytes});
    posted.request->Done(WrongLength(link, tag, posted.bytes, offer.bytes));
    return absl::OkStatus();
  }
  if (offer.region == 0) {
    const uint64_t id = staged_.Add({.peer = link.peer(), .posted = posted});
    link.SendStruct(CellKind::kGrant, Grant{.send = offer.send, .receive = id});
    return absl::OkStatus();
  }
  const MemoryKey key{.region = offer.region, .offset = offer.offset};
  auto from = space_->Map(link.peer(), key, offer.bytes);
  if (!from.ok()) {
    posted.request->Done(from.status());
    return from.status();
  }
  copies_->Add({.link = &link,
                .from = *from,
                .to = posted.destination,
                .bytes = posted.bytes,
                .request = posted.request,
                .ack = offer.send});
  return absl::OkStatus();
}

absl::Status Receiver::OnPiece(Link& link, const Piece& piece) {
  Staged* staged = staged_.Find(piece.receive);
  const size_t bytes = piece.slot_and_bytes & 0xffffff;
  const uint32_t slot = piece.slot_and_bytes >> 24;
  if (staged == nullptr || staged->peer != link.peer()) {
    return DataLoss("it sent a piece for receive {:#x}, which does not wait for one",
                    piece.receive);
  }
  const size_t left = staged->posted.bytes - staged->received;
  if (piece.at != staged->received || bytes == 0 || bytes > left ||
      (bytes < left && bytes % 64 != 0)) {
    return DataLoss("it sent bytes {} to {} of a message; {} of {} had arrived", piece.at,
                    piece.at + bytes, staged->received, staged->posted.bytes);
  }
  const MemoryKey key{.region = piece.region, .offset = piece.offset};
  TUTTI_ASSIGN_OR_RETURN(const std::byte* from, space_->Map(link.peer(), key, bytes));
  const Posted& posted = staged->posted;
  Deliver(from, posted.destination, staged->received, bytes, posted.request);
  staged->received += bytes;
  link.SendStruct(CellKind::kTaken, Taken{.slot = slot});
  if (bytes == left) staged_.Take(piece.receive).posted.request->Done(absl::OkStatus());
  return absl::OkStatus();
}

bool Receiver::HasOpen(int peer) const {
  return posted_.Holds(peer) ||
         staged_.Any([&](const Staged& staged) { return staged.peer == peer; });
}

void Receiver::Drop(Link& link, const absl::Status& status) {
  arrived_.TakeAll(link.peer(), [&](Tag, Arrived& arrived) {
    if (arrived.copy) stash_.Release(std::move(arrived.copy), arrived.offer.bytes);
  });
  posted_.TakeAll(link.peer(), [&](Tag, const Posted& posted) { posted.request->Done(status); });
  staged_.TakeIf([&](const Staged& staged) { return staged.peer == link.peer(); },
                 [&](const Staged& staged) { staged.posted.request->Done(status); });
}

}  // namespace tutti::net::memory
