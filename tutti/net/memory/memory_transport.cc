#include "tutti/net/memory/memory_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net::memory {
namespace {

// Looking after the peers takes system calls. The clock, that tells when it is time for them, takes
// as long as two calls of Progress.
constexpr int64_t kNanosBetweenChecks = 10'000'000;
constexpr uint32_t kCallsBetweenClocks = 256;
// Messages taken from one link before the next has its turn.
constexpr int kMessagesInARow = 64;
constexpr size_t kMostShorts = 1 << 16;

class UnreachableMemory final : public RegisteredMemory {
 public:
  explicit UnreachableMemory(Bytes bytes) : bytes_(bytes) {}
  Bytes bytes() const override { return bytes_; }
  MemoryKey key() const override { return {}; }

 private:
  Bytes bytes_;
};

template <typename T>
absl::Status ReadStruct(const RingConsumer::Message& message, T* value) {
  if (message.header.bytes != sizeof(T)) {
    return DataLoss("a cell of kind {} has {} bytes; expected {}",
                    static_cast<int>(message.header.kind), message.header.bytes, sizeof(T));
  }
  std::memcpy(value, message.payload, sizeof(T));
  return absl::OkStatus();
}

}  // namespace

MemoryTransport::MemoryTransport(std::unique_ptr<Space> space, const HostRanks& ranks)
    : rank_(ranks.rank),
      crowded_(ranks.crowded),
      bell_(&ranks.own.doorbell()),
      space_(std::move(space)),
      links_(static_cast<size_t>(ranks.size)) {
  int own_place = -1;
  for (size_t i = 0; i < ranks.reachable.size(); ++i) {
    if (ranks.reachable[i].rank == rank_) own_place = static_cast<int>(i);
  }
  TUTTI_CHECK(own_place >= 0);
  const Link::Shared shared{.rank = rank_,
                            .space = space_.get(),
                            .copies = &copies_,
                            .stash = &stash_,
                            .links = ranks.reachable.size()};
  for (size_t i = 0; i < ranks.reachable.size(); ++i) {
    const auto& [peer, mailbox] = ranks.reachable[i];
    if (peer == rank_) continue;
    auto& link = links_[static_cast<size_t>(peer)];
    link = std::make_unique<Link>(shared, peer, mailbox, own_place,
                                  ranks.own.ring(static_cast<int>(i)));
    reachable_.push_back(link.get());
  }
}

MemoryTransport::~MemoryTransport() = default;

LinkKind MemoryTransport::link(int peer) const {
  if (peer == rank_) return LinkKind::kSelf;
  return links_[static_cast<size_t>(peer)] ? LinkKind::kMemory : LinkKind::kSocket;
}

std::string MemoryTransport::Describe(int peer) const { return space_->Describe(peer); }

// Memory ----------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RegisteredMemory>> MemoryTransport::Allocate(size_t bytes) {
  return space_->Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> MemoryTransport::Register(Bytes bytes) {
  return std::make_unique<UnreachableMemory>(bytes);
}

MemoryKey MemoryTransport::KeyOf(const void* data, size_t bytes) const {
  return space_->KeyOf(data, bytes);
}

absl::StatusOr<std::byte*> MemoryTransport::Map(int peer, MemoryKey key, size_t bytes) {
  absl::Status why;
  if (peer != rank_ && Find(peer, Use::kSend, &why) == nullptr) return why;
  if (key.region == 0 || key.region == Space::kExposed) {
    return InvalidArgument("memory key {}+{} names no memory that {} allocated", key.region,
                           key.offset, Describe(peer));
  }
  return space_->Map(peer, key, bytes);
}

void MemoryTransport::CopyNow(Link& link, const std::byte* from, std::byte* to, size_t bytes,
                              Request* request) {
  if (bytes <= Copies::kSliceBytes) {
    Deliver(from, to, 0, bytes, request);
    return request->Done(absl::OkStatus());
  }
  copies_.Add({.link = &link, .from = from, .to = to, .bytes = bytes, .request = request});
  busy_.store(true, std::memory_order_relaxed);
}

void MemoryTransport::Put(int peer, MemoryKey destination, ConstBytes source, Request* request) {
  absl::Status why;
  Link* link = Find(peer, Use::kSend, &why);
  if (link == nullptr) return request->Done(why);
  auto to = Map(peer, destination, source.size());
  if (!to.ok()) return request->Done(to.status());
  CopyNow(*link, source.data(), *to, source.size(), request);
}

void MemoryTransport::Get(int peer, MemoryKey source, Bytes destination, Request* request) {
  absl::Status why;
  Link* link = Find(peer, Use::kSend, &why);
  if (link == nullptr) return request->Done(why);
  auto from = Map(peer, source, destination.size());
  if (!from.ok()) return request->Done(from.status());
  CopyNow(*link, *from, destination.data(), destination.size(), request);
}

// Messages --------------------------------------------------------------------------------------

Link* MemoryTransport::Find(int peer, Use use, absl::Status* why) {
  if (peer == rank_) {
    *why = InvalidArgument("rank {} has no link to itself", peer);
    return nullptr;
  }
  Link* link = nullptr;
  if (peer >= 0 && peer < size()) link = links_[static_cast<size_t>(peer)].get();
  if (link == nullptr) {
    *why = InvalidArgument("rank {} shares no memory with rank {}; there are {} ranks", peer, rank_,
                           size());
    return nullptr;
  }
  if (use == Use::kSend && !link->left.ok() && link->status().ok()) Break(*link, link->left);
  if (!link->status().ok()) {
    *why = link->status();
    return nullptr;
  }
  return link;
}

void MemoryTransport::Send(int peer, Tag tag, ConstBytes data, Request* request) {
  absl::Status why;
  Link* link = Find(peer, Use::kSend, &why);
  if (link == nullptr) return request->Done(why);
  if (absl::Status status = link->engine().sender.Send(tag, data, request); !status.ok()) {
    Break(*link, status);
  }
}

void MemoryTransport::Receive(int peer, Tag tag, std::byte* destination, size_t bytes,
                              Request* request) {
  absl::Status why;
  Link* link = Find(peer, Use::kReceive, &why);
  if (link == nullptr) return request->Done(why);
  message::Receiver& receiver = link->engine().receiver;
  if (!link->left.ok()) {
    // What a peer sent before it left is there; nothing else will come.
    if (receiver.TakeKept(tag, destination, bytes, request)) return;
    Break(*link, link->left);
    return request->Done(link->status());
  }
  const absl::Status status = receiver.Receive(tag, destination, bytes, request);
  if (!status.ok()) Break(*link, status);
  if (!copies_.empty()) busy_.store(true, std::memory_order_relaxed);
}

absl::Status MemoryTransport::SendShort(int peer, Tag tag, ConstBytes data) {
  absl::Status why;
  Link* link = Find(peer, Use::kSend, &why);
  if (link == nullptr) return why;
  if (data.size() > kShortBytes) {
    return InvalidArgument("a short message of {} bytes; it may have {}", data.size(), kShortBytes);
  }
  if (link->SendCopy(CellKind::kShort, tag, data)) return absl::OkStatus();
  return ResourceExhausted("{} does not read its messages; too many wait", Describe(peer));
}

bool MemoryTransport::NextShort(ShortMessage* message) { return shorts_.Take(message); }

// Links -----------------------------------------------------------------------------------------

void MemoryTransport::Drop(Link& link, const absl::Status& status) {
  link.End(status);
  copies_.Drop(link, status);
  link.staging.Drop(status);
  link.engine().Close(status);
  link.engine().receiver.DropKept();
}

void MemoryTransport::Break(Link& link, const absl::Status& status) {
  if (!link.status().ok()) return;
  const absl::Status named = WithPrefix(status, Describe(link.peer()) + ": ");
  Drop(link, named);
  // That a peer left was told when it did.
  if (link.left.ok()) broken_.push_back({.peer = link.peer(), .status = named});
}

void MemoryTransport::Fail(int peer, const absl::Status& status) {
  absl::Status why;
  if (Link* link = Find(peer, Use::kReceive, &why)) Drop(*link, status);
}

bool MemoryTransport::NextBroken(BrokenLink* broken) {
  if (broken_.empty()) return false;
  *broken = std::move(broken_.front());
  broken_.pop_front();
  return true;
}

void MemoryTransport::CheckPeers() {
  Space::Event event;
  while (space_->NextEvent(&event)) {
    Link* link = links_[static_cast<size_t>(event.peer)].get();
    if (link == nullptr || !link->status().ok()) continue;
    // What it sent before it went counts.
    size_t budget = SIZE_MAX;
    while (link->status().ok() && Drain(*link, &budget)) {
    }
    if (!event.left) {
      Break(*link, event.status);
      continue;
    }
    link->left = event.status;
    broken_.push_back(
        {.peer = event.peer, .status = WithPrefix(event.status, Describe(event.peer) + ": ")});
    if (link->engine().HasOpen() || !link->staging.empty() || !link->queue_empty()) {
      Break(*link, event.status);
    }
  }
}

// Progress --------------------------------------------------------------------------------------

bool MemoryTransport::Progress() {
  size_t budget = Copies::kSliceBytes;
  bool moved = false;
  for (Link* link : reachable_) {
    if (link->in.Ready()) moved |= Drain(*link, &budget);
    if (!link->queue_empty()) {
      moved |= link->Flush();
      if (absl::Status health = link->Health(); !health.ok()) Break(*link, health);
    }
    if (!link->staging.empty()) moved |= link->staging.Stream(*link);
  }
  if (!copies_.empty()) {
    copies_.Advance(std::max<size_t>(budget, Copies::kSliceBytes / 4));
    moved = true;
  }
  if (busy_.load(std::memory_order_relaxed) == copies_.empty()) {
    busy_.store(!copies_.empty(), std::memory_order_relaxed);
  }
  if (++calls_ >= kCallsBetweenClocks || check_.load(std::memory_order_relaxed)) {
    moved |= CheckPeersSometimes();
  }
  return moved;
}

bool MemoryTransport::CheckPeersSometimes() {
  calls_ = 0;
  const int64_t now = NowNanos();
  if (!check_.load(std::memory_order_relaxed) && now - checked_at_ < kNanosBetweenChecks) {
    return false;
  }
  check_.store(false, std::memory_order_relaxed);
  checked_at_ = now;
  const size_t broken = broken_.size();
  CheckPeers();
  return broken_.size() != broken;
}

bool MemoryTransport::Drain(Link& link, size_t* budget) {
  if (!link.status().ok()) return false;
  bool moved = false;
  RingConsumer::Message message;
  for (int i = 0; i<kMessagesInARow&& * budget> 0; ++i) {
    const RingConsumer::Found found = link.in.Peek(&message);
    if (found == RingConsumer::Found::kNothing) break;
    moved = true;
    absl::Status status;
    if (found == RingConsumer::Found::kCorrupt) {
      status = DataLoss("a cell of {} bytes reaches beyond its ring", message.header.bytes);
    } else {
      status = Handle(link, message, budget);
      // Memory that makes no sense is damaged, whoever did that.
      if (absl::IsInvalidArgument(status)) status = DataLoss("{}", MessageOf(status));
    }
    if (!status.ok()) {
      Break(link, status);
      break;
    }
    if (link.in.Pop(message)) link.WakePeer();
  }
  return moved;
}

absl::Status MemoryTransport::Handle(Link& link, const RingConsumer::Message& message,
                                     size_t* budget) {
  const CellHeader& header = message.header;
  const Tag tag{.operation = header.operation, .index = header.index};
  const ConstBytes payload(message.payload, header.bytes);
  switch (header.kind) {
    case CellKind::kShort:
      return HandleShort(link, tag, payload);
    case CellKind::kEager:
      return link.engine().receiver.OnEager(tag, payload);
    case CellKind::kOffer: {
      Offer offer{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &offer));
      return link.engine().receiver.OnOffer(
          tag, {.bytes = offer.bytes,
                .send = offer.send,
                .key = {.region = offer.region, .offset = offer.offset}});
    }
    case CellKind::kGrant: {
      Grant grant{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &grant));
      if (grant.send == 0 || grant.receive == 0) return DataLoss("it granted no send");
      return link.engine().sender.OnInvitation(
          tag, {.receive = grant.receive, .bytes = grant.bytes, .send = grant.send});
    }
    case CellKind::kPiece: {
      Piece piece{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &piece));
      *budget -= std::min(*budget, kPieceBytes);
      return link.staging.OnPiece(link, piece);
    }
    case CellKind::kTaken: {
      Taken taken{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &taken));
      return link.staging.OnTaken(taken);
    }
    case CellKind::kAck: {
      Ack ack{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &ack));
      if (ack.send == 0) return DataLoss("it acknowledged no send");
      if (ack.refused == 0) return link.engine().sender.OnFetched(tag, ack.send);
      return link.engine().sender.OnInvitation(tag, {.bytes = ack.expected, .send = ack.send});
    }
    case CellKind::kRead: {
      Read read{};
      TUTTI_RETURN_IF_ERROR(ReadStruct(message, &read));
      return link.engine().sender.OnTaken(read.taken);
    }
    case CellKind::kPad:
      break;
  }
  return DataLoss("a cell of kind {}, which does not exist", static_cast<int>(header.kind));
}

absl::Status MemoryTransport::HandleShort(Link& link, Tag tag, ConstBytes payload) {
  if (payload.size() > kShortBytes) {
    return DataLoss("a short message of {} bytes; it may have {}", payload.size(), kShortBytes);
  }
  if (shorts_.size() >= kMostShorts) {
    return ResourceExhausted("{} short messages wait to be taken", shorts_.size());
  }
  shorts_.Add(link.peer(), tag, payload);
  return absl::OkStatus();
}

}  // namespace tutti::net::memory
