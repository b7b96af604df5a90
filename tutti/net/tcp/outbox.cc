#include "tutti/net/tcp/outbox.h"

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/tcp/link.h"
#include "tutti/net/tcp/shared.h"
#include "tutti/net/tcp/stream_plan.h"
#include "tutti/net/wire.h"

namespace tutti::net::tcp {
namespace {

OutFrame MakeFrame(FrameHeader header, ConstBytes payload) {
  OutFrame frame;
  header.payload = static_cast<uint32_t>(payload.size());
  header.payload_crc = Crc32c(payload);
  frame.header = EncodeHeader(header);
  return frame;
}

}  // namespace

Outbox::Outbox(Shared* shared, Link* link)
    : shared_(shared), link_(link), streams_(2), bulk_(2), pinned_bytes_(2) {}

Outbox::~Outbox() = default;

void Outbox::SetAddress(const Address& address, bool on_this_host) {
  address_ = address;
  const StreamPlan plan = PlanStreams(shared_->options, on_this_host);
  send_buffer_ = plan.send_buffer;
  streams_.resize(static_cast<size_t>(1 + plan.streams));
  bulk_.resize(streams_.size());
  pinned_bytes_.resize(streams_.size());
}

std::string Outbox::Describe() const { return link_->Describe(); }

void Outbox::Attend() { StreamFor(0); }

OutStream* Outbox::StreamFor(int number) {
  auto& stream = streams_[static_cast<size_t>(number)];
  if (stream == nullptr) {
    stream = std::make_unique<OutStream>(shared_, link_, this, number);
    stream->Connect(address_, number > 0 ? send_buffer_ : 0);
  }
  return stream.get();
}

void Outbox::SendControl(FrameHeader header, std::string_view payload) {
  header.total = std::max<uint64_t>(header.total, payload.size());
  OutFrame frame = MakeFrame(header, AsBytes(payload));
  frame.owned = payload;
  StreamFor(0)->Push(std::move(frame));
}

void Outbox::SendEager(Tag tag, ConstBytes data, Request* request) {
  OutFrame frame = MakeFrame({.kind = FrameKind::kEager,
                              .index = tag.index,
                              .operation = tag.operation,
                              .total = data.size()},
                             data);
  frame.payload = data;
  frame.request = request;
  StreamFor(0)->Push(std::move(frame));
}

void Outbox::SendOffer(Tag tag, const message::Offer& offer) {
  SendControl({.kind = FrameKind::kAnnounce,
               .index = tag.index,
               .operation = tag.operation,
               .total = offer.bytes});
}

void Outbox::SendInvitation(Tag tag, const message::Invitation& invitation) {
  SendControl({.kind = FrameKind::kReady,
               .flags = invitation.in_order ? kInOrder : FrameFlags{0},
               .index = tag.index,
               .operation = tag.operation,
               .id = invitation.receive,
               .total = invitation.bytes});
}

void Outbox::SendDiffers(uint64_t receive, uint64_t bytes) {
  SendControl({.kind = FrameKind::kDiffers, .id = receive, .total = bytes});
}

void Outbox::SendTaken(uint64_t taken) { SendControl({.kind = FrameKind::kTaken, .total = taken}); }

absl::Status Outbox::SendBytes(const message::Invitation& invitation, ConstBytes data, bool offered,
                               Request* request) {
  BulkMessage message;
  message.header = {.kind = FrameKind::kData,
                    .flags = offered ? kAnnounced : FrameFlags{0},
                    .id = invitation.receive,
                    .total = data.size()};
  message.data = data.data();
  message.request = request;
  AddBulk(std::move(message), invitation.in_order);
  return absl::OkStatus();
}

void Outbox::Put(MemoryKey destination, ConstBytes source, Request* request) {
  BulkMessage message;
  message.header = {.kind = FrameKind::kPut,
                    .index = destination.region,
                    .operation = destination.offset,
                    .id = ++last_put_,
                    .total = source.size()};
  message.data = source.data();
  puts_.emplace(last_put_, request);
  // In order, so that the peer can answer when the last frame is there.
  AddBulk(std::move(message), /*in_order=*/true);
}

void Outbox::Answer(uint64_t id, std::shared_ptr<message::Region> region, ConstBytes bytes) {
  BulkMessage message;
  message.header = {.kind = FrameKind::kData, .id = id, .total = bytes.size()};
  message.data = bytes.data();
  message.region = std::move(region);
  AddBulk(std::move(message), /*in_order=*/false);
}

absl::Status Outbox::OnPutDone(const FrameHeader& header) {
  const auto found = puts_.find(header.id);
  if (found == puts_.end()) return InvalidArgument("ended put {}, which is not open", header.id);
  Request* request = found->second;
  puts_.erase(found);
  request->Done(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Outbox::OnPutRefused(const FrameHeader& header, std::string_view reason) {
  const auto found = puts_.find(header.id);
  if (found == puts_.end()) return InvalidArgument("refused put {}, which is not open", header.id);
  Request* request = found->second;
  puts_.erase(found);
  request->Done(InvalidArgument("{} refused a put: {}", link_->Describe(), Printable(reason)));
  return absl::OkStatus();
}

// Bulk -------------------------------------------------------------------------------------------

void Outbox::AddBulk(BulkMessage message, bool in_order) {
  int first = 1;
  int last = static_cast<int>(streams_.size()) - 1;
  if (in_order) {
    const auto least = std::min_element(pinned_bytes_.begin() + 1, pinned_bytes_.end());
    first = last = message.stream = static_cast<int>(least - pinned_bytes_.begin());
    *least += message.header.total;
  }
  message.number = ++last_number_;
  messages_.push_back(std::move(message));
  BulkMessage* added = &messages_.back();
  added->self = std::prev(messages_.end());
  bulk_[static_cast<size_t>(added->stream)].push_back(added);
  // A small message does not need streams that are not there yet.
  if (!in_order && added->header.total <= kMaxPayload) last = first;
  for (int i = first; i <= last; ++i) StreamFor(i)->Pump();
}

// The queue whose first message began first, of those that the stream may serve; null if all are
// empty.
std::deque<BulkMessage*>* Outbox::NextQueue(int stream) {
  if (stream == 0) return nullptr;
  auto& own = bulk_[static_cast<size_t>(stream)];
  auto& any = bulk_[0];
  if (own.empty()) return any.empty() ? nullptr : &any;
  if (any.empty()) return &own;
  return own.front()->number < any.front()->number ? &own : &any;
}

bool Outbox::HasFrames(int stream) const {
  return stream > 0 && !(bulk_[0].empty() && bulk_[static_cast<size_t>(stream)].empty());
}

bool Outbox::NextFrame(int stream, OutFrame* frame) {
  std::deque<BulkMessage*>* queue = NextQueue(stream);
  if (queue == nullptr) return false;
  BulkMessage* message = queue->front();
  const uint64_t rest = message->header.total - message->cut;
  const ConstBytes payload(message->data + message->cut, std::min<uint64_t>(rest, kMaxPayload));
  FrameHeader header = message->header;
  header.offset = message->cut;
  *frame = MakeFrame(header, payload);
  frame->payload = payload;
  frame->message = message;
  message->cut += payload.size();
  ++message->in_flight;
  // An empty message has come here too: it is one empty frame.
  if (message->cut == message->header.total) queue->pop_front();
  return true;
}

void Outbox::Written(const OutFrame& frame) {
  if (frame.request != nullptr) frame.request->Done(absl::OkStatus());
  BulkMessage* message = frame.message;
  if (message == nullptr) return;
  if (message->stream != 0) {
    pinned_bytes_[static_cast<size_t>(message->stream)] -= frame.payload.size();
  }
  --message->in_flight;
  if (message->in_flight > 0 || message->cut < message->header.total) return;
  Request* request = message->request;
  messages_.erase(message->self);
  if (request != nullptr) request->Done(absl::OkStatus());
}

// The end ----------------------------------------------------------------------------------------

bool Outbox::Uses(const message::Region& region) const {
  return std::any_of(messages_.begin(), messages_.end(),
                     [&](const BulkMessage& message) { return message.region.get() == &region; });
}

const OutStream* Outbox::Overdue(int64_t now) const {
  for (const auto& stream : streams_) {
    if (stream == nullptr || stream->deadline() == 0) continue;
    if (stream->deadline() <= now) return stream.get();
    shared_->poller.WakeBy(stream->deadline());
  }
  return nullptr;
}

void Outbox::Close(const absl::Status& status) {
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->Close(status);
  }
  for (auto& queue : bulk_) queue.clear();
  for (BulkMessage& message : std::exchange(messages_, {})) {
    if (message.request != nullptr) message.request->Done(status);
  }
  for (const auto& [id, request] : std::exchange(puts_, {})) request->Done(status);
}

void Outbox::CollectUnsent(std::vector<OutStream*>* streams) const {
  OutStream* control = streams_[0].get();
  if (control != nullptr && !control->closed() && !control->queue_empty()) {
    streams->push_back(control);
  }
}

}  // namespace tutti::net::tcp
