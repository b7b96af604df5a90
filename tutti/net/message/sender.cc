#include "tutti/net/message/sender.h"

#include "tutti/base/status.h"

namespace tutti::net::message {
namespace {

// Far more than the operations in flight need: past it the peer breaks the rules.
constexpr size_t kMostInvitations = size_t{1} << 20;

}  // namespace

absl::Status Sender::SendLater(Tag tag, ConstBytes data, Request* request) {
  if (Invitation invitation; invitations_.Take(tag, &invitation)) {
    return Answer(tag, invitation, {.data = data, .request = request}, /*offered=*/false);
  }
  // Behind one of its tag that waits a message waits too: they are matched in order.
  if (data.size() <= eager_bytes_ && waiting_.Find(tag) == nullptr &&
      window_.TrySend(data.size())) {
    wire_->SendEager(tag, data, request);
    return absl::OkStatus();
  }
  const MemoryKey key = wire_->KeyFor(data);
  const uint64_t id = ++last_id_;
  waiting_.Add(tag, {.id = id, .data = data, .request = request, .fetched = key.region != 0});
  wire_->SendOffer(tag, {.bytes = data.size(), .send = id, .key = key});
  return absl::OkStatus();
}

absl::Status Sender::OnInvitation(Tag tag, const Invitation& invitation) {
  const auto answers = [&](const Waiting& send) {
    // A refusal may come for an offer that the peer could have fetched, an invitation may not.
    if (invitation.receive != 0 && send.fetched) return false;
    return invitation.send == 0 || invitation.send == send.id;
  };
  if (Waiting send; waiting_.TakeIf(tag, answers, &send)) {
    return Answer(tag, invitation, send, /*offered=*/true);
  }
  if (invitation.send != 0) {
    return InvalidArgument("answered send {} of message {}.{}, which does not wait for that",
                           invitation.send, tag.operation, tag.index);
  }
  // A receive that has ended already, told only to end its send.
  if (invitation.receive == 0) return absl::OkStatus();
  if (invitations_.size() == kMostInvitations) {
    return ResourceExhausted("waits for {} messages that were not sent", kMostInvitations);
  }
  invitations_.Add(tag, invitation);
  return absl::OkStatus();
}

absl::Status Sender::Answer(Tag tag, const Invitation& invitation, const Waiting& send,
                            bool offered) {
  if (invitation.receive != 0 && invitation.bytes == send.data.size()) {
    return wire_->SendBytes(invitation, send.data, offered, send.request);
  }
  if (invitation.receive != 0) wire_->SendDiffers(invitation.receive, send.data.size());
  send.request->Done(InvalidArgument("{}: message {}.{} has {} bytes, but the receiver expects {}",
                                     wire_->Describe(), tag.operation, tag.index, send.data.size(),
                                     invitation.bytes));
  return absl::OkStatus();
}

absl::Status Sender::OnFetched(Tag tag, uint64_t id) {
  Waiting send;
  const auto fetched = [&](const Waiting& one) { return one.id == id && one.fetched; };
  if (!waiting_.TakeIf(tag, fetched, &send)) {
    return InvalidArgument("fetched send {} of message {}.{}, which does not wait for that", id,
                           tag.operation, tag.index);
  }
  send.request->Done(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Sender::OnTaken(uint64_t taken) {
  if (window_.OnTaken(taken)) return absl::OkStatus();
  return InvalidArgument("says that it has taken {} bytes of messages, which were not sent", taken);
}

void Sender::Close(const absl::Status& status) {
  invitations_.TakeAll([](Tag, const Invitation&) {});
  waiting_.TakeAll([&](Tag, const Waiting& send) { send.request->Done(status); });
}

}  // namespace tutti::net::message
