#include "tutti/net/ucx/link.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net::ucx {
namespace {

// After a peer has left: how long until frames that it sent before, and that have not come, are
// given up.
constexpr int64_t kGraceNanos = 500'000'000;

// Short messages that UCX has not taken yet, up to 1 KB each: the peer is stuck, or the caller does
// not wait for it.
constexpr size_t kMostShortsUnsent = size_t{1} << 17;

// As for TCP: half of what a peer may make this rank keep is for messages that came at once.
message::Limits LimitsOf(const UcxOptions& options) {
  return {.rank = options.rank,
          .eager_bytes = kEagerBytes,
          .window = options.max_kept_bytes / 2,
          .kept_bytes = options.max_kept_bytes,
          .invites_early = true};
}

}  // namespace

Link::Link(Shared* shared, int peer)
    : shared_(shared),
      peer_(peer),
      engine_(this, &shared->stash, LimitsOf(shared->options)),
      inbox_(shared, this, &engine_) {
  endpoint_.host = "not connected yet";
}

absl::Status Link::SetEndpoint(std::string_view endpoint) {
  TUTTI_ASSIGN_OR_RETURN(endpoint_, ParseUcxEndpoint(endpoint));
  return absl::OkStatus();
}

std::string Link::Describe() const { return fmt::format("rank {} ({}, ucx)", peer_, host()); }

// The caller's side ------------------------------------------------------------------------------

void Link::Send(Tag tag, ConstBytes data, Request* request) {
  if (absl::Status status = engine_.sender.Send(tag, data, request); !status.ok()) Break(status);
}

void Link::Receive(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  const absl::Status status = engine_.receiver.Receive(tag, destination, bytes, request);
  if (!status.ok()) Break(status);
}

void Link::SendShort(Tag tag, ConstBytes data) {
  if (unsent_shorts_ == kMostShortsUnsent) {
    return Break(ResourceExhausted("{} short messages wait for it; it does not read them",
                                   kMostShortsUnsent));
  }
  ++unsent_shorts_;
  Transmit({.header = {.kind = FrameKind::kShort, .operation = tag.operation, .index = tag.index},
            .data = data,
            .copies = true,
            .flags = UCP_AM_SEND_FLAG_EAGER},
           [this](const absl::Status& status) {
             --unsent_shorts_;
             if (!status.ok()) Lose(status);
           });
}

void Link::Put(MemoryKey destination, ConstBytes source, Request* request) {
  const uint64_t id = ++last_put_;
  puts_.emplace(id, OpenPut{.request = request, .status = {}});
  Transmit({.header = {.kind = FrameKind::kPut,
                       .operation = destination.offset,
                       .index = destination.region,
                       .id = id,
                       .total = source.size()},
            .data = source},
           [this, id](const absl::Status& status) {
             if (!status.ok()) return Lose(status);  // which ends the put
             const auto found = puts_.find(id);
             if (found == puts_.end()) return;
             found->second.sent = true;
             EndPut(id);
           });
}

absl::Status Link::OnPutAnswered(uint64_t id, const absl::Status& status) {
  const auto found = puts_.find(id);
  if (found == puts_.end() || found->second.answered) {
    return InvalidArgument("answered put {}, which is not open", id);
  }
  found->second.answered = true;
  found->second.status = status;
  EndPut(id);
  return absl::OkStatus();
}

// The answer may overtake UCX's word that the memory is free.
void Link::EndPut(uint64_t id) {
  const auto found = puts_.find(id);
  if (!found->second.sent || !found->second.answered) return;
  const OpenPut put = found->second;
  puts_.erase(found);
  put.request->Done(put.status);
}

void Link::Get(MemoryKey source, Bytes destination, Request* request) {
  const message::OpenReceive* const receive =
      engine_.receiver.Expect(destination.data(), destination.size(), request);
  SendControl({.kind = FrameKind::kGet,
               .operation = source.offset,
               .index = source.region,
               .id = receive->id,
               .total = destination.size()});
}

void Link::Answer(uint64_t id, std::shared_ptr<message::Region> region, ConstBytes bytes) {
  Transmit({.header = {.kind = FrameKind::kData, .id = id, .total = bytes.size()},
            .data = bytes,
            .region = std::move(region)},
           [this](const absl::Status& status) {
             if (!status.ok()) Lose(status);
           });
}

// What the engine says ---------------------------------------------------------------------------

void Link::SendEager(Tag tag, ConstBytes data, Request* request) {
  Transmit({.header = {.kind = FrameKind::kEager,
                       .operation = tag.operation,
                       .index = tag.index,
                       .total = data.size()},
            .data = data,
            .flags = UCP_AM_SEND_FLAG_EAGER},
           EndsRequest(request));
}

void Link::SendOffer(Tag tag, const message::Offer& offer) {
  SendControl({.kind = FrameKind::kOffer,
               .operation = tag.operation,
               .index = tag.index,
               .total = offer.bytes});
}

void Link::SendInvitation(Tag tag, const message::Invitation& invitation) {
  SendControl({.kind = FrameKind::kInvitation,
               .flags = invitation.in_order ? kInOrder : FrameFlags{0},
               .operation = tag.operation,
               .index = tag.index,
               .id = invitation.receive,
               .total = invitation.bytes});
}

void Link::SendDiffers(uint64_t receive, uint64_t bytes) {
  SendControl({.kind = FrameKind::kDiffers, .id = receive, .total = bytes});
}

void Link::SendTaken(uint64_t taken) { SendControl({.kind = FrameKind::kTaken, .total = taken}); }

// To memory the bytes go as one active message, for which UCX finds the best way. Where they are to
// come in order they go in pieces, by rendezvous: so the receiver asks for one after the other.
absl::Status Link::SendBytes(const message::Invitation& invitation, ConstBytes data, bool offered,
                             Request* request) {
  FrameHeader header = {.kind = FrameKind::kData,
                        .flags = offered ? kOffered : FrameFlags{0},
                        .id = invitation.receive,
                        .total = data.size()};
  if (!invitation.in_order || data.size() <= kPieceBytes) {
    Transmit({.header = header, .data = data}, EndsRequest(request));
    return absl::OkStatus();
  }
  const auto left = std::make_shared<size_t>((data.size() + kPieceBytes - 1) / kPieceBytes);
  for (size_t at = 0; at < data.size(); at += kPieceBytes) {
    header.offset = at;
    Transmit({.header = header,
              .data = data.subspan(at, std::min(kPieceBytes, data.size() - at)),
              .flags = UCP_AM_SEND_FLAG_RNDV},
             [this, left, request](const absl::Status& status) {
               if (!status.ok()) Lose(status);
               if (--*left == 0) request->Done(status_);
             });
  }
  return absl::OkStatus();
}

void Link::Attend() {
  if (connection_.endpoint == nullptr) SendControl({.kind = FrameKind::kHello});
}

// Frames -----------------------------------------------------------------------------------------

bool Link::Connect() {
  if (connection_.endpoint != nullptr) return true;
  if (!alive() || worker().halted()) return false;
  absl::StatusOr<Worker::Connection> made = worker().Connect(endpoint_.address, this);
  if (!made.ok()) {
    Lose(made.status());
    return false;
  }
  connection_ = *made;
  return true;
}

void Link::Transmit(Worker::Send send, Ended ended) {
  if (!Connect()) return ended(status_);
  send.header.key = endpoint_.key;
  send.header.from = static_cast<uint32_t>(shared_->options.rank);
  ++sent_;
  worker().StartSend(connection_, std::move(send), &transfers_, std::move(ended));
}

Ended Link::EndsRequest(Request* request) {
  return [this, request](const absl::Status& status) {
    if (!status.ok()) Lose(status);
    request->Done(status.ok() ? status : status_);
  };
}

void Link::SendControl(const FrameHeader& header, std::string_view data) {
  Transmit(
      {.header = header, .data = AsBytes(data), .copies = true, .flags = UCP_AM_SEND_FLAG_EAGER},
      [this](const absl::Status& status) {
        if (!status.ok()) Lose(status);
      });
}

void Link::StartReceive(const Payload& payload, std::byte* destination,
                        std::shared_ptr<message::Region> region, Ended ended) {
  worker().StartReceive(payload.data, {destination, payload.bytes}, std::move(region), &transfers_,
                        [this, ended = std::move(ended)](const absl::Status& status) {
                          if (!status.ok()) Lose(status);
                          ended(status);
                        });
}

void Link::OnFrame(const FrameHeader& header, const Payload& payload) {
  if (!alive()) return worker().Drop(payload);
  if (header.kind != FrameKind::kBye) ++received_;
  Connect();  // so that the peer hears of it when this rank leaves
  if (const absl::Status status = inbox_.OnFrame(header, payload); !status.ok()) Break(status);
  if (bye_deadline_ != 0 && received_ >= bye_frames_) Lose(Unavailable("has left"));
}

// The end ----------------------------------------------------------------------------------------

void Link::OnBye(uint64_t frames) {
  bye_frames_ = frames;
  bye_deadline_ = NowNanos() + kGraceNanos;
  shared_->poller.WakeBy(bye_deadline_);
}

void Link::CheckDeadline(int64_t now) {
  if (bye_deadline_ == 0 || !alive()) return;
  if (now >= bye_deadline_) return Lose(Unavailable("has left"));
  shared_->poller.WakeBy(bye_deadline_);
}

void Link::Break(const absl::Status& status) {
  if (!alive()) return;
  status_ = WithPrefix(status, Describe() + ": ");
  shared_->breaking.push_back(this);
  // Nobody may be making progress: let a sleeper see to it.
  shared_->poller.Wake();
}

void Link::Lose(const absl::Status& status) {
  if (!alive()) return;
  lost_ = true;
  Break(status);
}

void Link::Withdraw(const message::Region& region) {
  const bool used = std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& one) {
    return !one.done && one.region.get() == &region;
  });
  if (!used) return;
  Break(FailedPrecondition("was at registered memory when it was given back"));
  Disconnect();
}

// Afterwards UCX touches no memory of the caller's any more.
void Link::Disconnect() {
  if (connection_.endpoint == nullptr) return;
  worker().CloseNow(std::exchange(connection_, {}), transfers_);
}

void Link::Close(const absl::Status& status) {
  status_ = status;
  Disconnect();
  worker().Abandon(&transfers_, status);
  inbox_.Close();
  for (const auto& [id, put] : std::exchange(puts_, {})) put.request->Done(status);
  engine_.Close(status);
  if (!lost_) engine_.receiver.DropKept();
}

bool Link::BeginLeave() {
  if (connection_.endpoint == nullptr) return false;
  const uint64_t frames = sent_;
  SendControl({.kind = FrameKind::kBye, .total = frames});
  closing_ = worker().Close(std::exchange(connection_, {}));
  return true;
}

bool Link::HasTransfers() const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [](const Transfer& transfer) { return !transfer.done; });
}

}  // namespace tutti::net::ucx
