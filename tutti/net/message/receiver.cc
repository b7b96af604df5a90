#include "tutti/net/message/receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"

namespace tutti::net::message {

Receiver::Receiver(Wire* wire, Stash* stash, const Limits& limits)
    : wire_(wire), stash_(stash), limits_(limits), taken_(limits.window) {}

Receiver::~Receiver() = default;

// The caller's side ------------------------------------------------------------------------------

absl::Status Receiver::Receive(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  const OpenReceive receive{
      .tag = tag, .destination = destination, .bytes = bytes, .request = request, .parts = {}};
  Arrived arrived;
  if (!arrived_.Take(tag, &arrived)) {
    wire_->Attend();
    OpenReceive* posted = Post(receive);
    posted_.Add(tag, posted);
    if (limits_.invites_early && bytes > limits_.eager_bytes) Invite(posted, /*send=*/0);
    return absl::OkStatus();
  }
  if (arrived.copy == nullptr) {
    Release(0);
    return Accept(receive, arrived.offer);
  }
  const size_t sent = arrived.offer.bytes;
  Release(sent);
  NoteTaken(sent);
  if (sent == bytes) {
    Deliver(receive, arrived.copy.get());
  } else {
    request->Done(Differing(tag, bytes, sent));
  }
  stash_->Release(std::move(arrived.copy), sent);
  return absl::OkStatus();
}

bool Receiver::TakeKept(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  const Arrived* found = arrived_.Find(tag);
  if (found == nullptr || found->copy == nullptr) return false;  // only offered
  Arrived arrived;
  arrived_.Take(tag, &arrived);
  const size_t sent = arrived.offer.bytes;
  Release(sent);
  if (sent == bytes) {
    Deliver(
        {.tag = tag, .destination = destination, .bytes = bytes, .request = request, .parts = {}},
        arrived.copy.get());
  } else {
    request->Done(Differing(tag, bytes, sent));
  }
  stash_->Release(std::move(arrived.copy), sent);
  return true;
}

OpenReceive* Receiver::Expect(std::byte* destination, size_t bytes, Request* request) {
  OpenReceive* receive = Post({.tagged = false,
                               .destination = destination,
                               .bytes = bytes,
                               .request = request,
                               .id = ++last_id_,
                               .parts = {}});
  by_id_.emplace(receive->id, receive);
  return receive;
}

// Whole messages ---------------------------------------------------------------------------------

absl::Status Receiver::OnEager(Tag tag, ConstBytes payload) {
  OpenReceive** posted = posted_.Find(tag);
  if (posted == nullptr) {
    TUTTI_RETURN_IF_ERROR(Keep(payload.size()));
    Stash::Buffer copy = stash_->Take(payload.size());
    if (!payload.empty()) std::memcpy(copy.get(), payload.data(), payload.size());
    arrived_.Add(tag, {.copy = std::move(copy), .offer = {.bytes = payload.size()}});
    return absl::OkStatus();
  }
  OpenReceive* receive = *posted;
  NoteTaken(payload.size());
  if (receive->bytes != payload.size() || receive->begun) {
    return EndEarly(receive, Differing(tag, receive->bytes, payload.size()));
  }
  Unpost(receive);
  Deliver(*receive, payload.data());
  Recycle(receive);
  return absl::OkStatus();
}

absl::Status Receiver::BeginEager(Tag tag, size_t bytes, Landing* landing, std::byte** target) {
  OpenReceive** posted = posted_.Find(tag);
  if (posted == nullptr) {
    TUTTI_RETURN_IF_ERROR(Keep(bytes));
    landing->kept = stash_->Take(bytes);
    *target = landing->kept.get();
    return absl::OkStatus();
  }
  OpenReceive* receive = *posted;
  if (receive->bytes != bytes || receive->begun) {
    return EndEarly(receive, Differing(tag, receive->bytes, bytes));
  }
  Unpost(receive);
  landing->receive = receive;
  *target = receive->destination;
  return absl::OkStatus();
}

absl::Status Receiver::EndEager(Tag tag, size_t bytes, Landing* landing, const std::byte* payload) {
  if (OpenReceive* receive = std::exchange(landing->receive, nullptr); receive != nullptr) {
    NoteTaken(bytes);
    Deliver(*receive, payload);
    Recycle(receive);
    return absl::OkStatus();
  }
  Stash::Buffer kept = std::move(landing->kept);
  OpenReceive** posted = posted_.Find(tag);
  if (kept != nullptr && posted == nullptr) {
    arrived_.Add(tag, {.copy = std::move(kept), .offer = {.bytes = bytes}});
    return absl::OkStatus();
  }
  NoteTaken(bytes);
  if (kept == nullptr) return absl::OkStatus();  // its Receive expected another length
  // Its Receive was posted while the payload was on its way.
  Release(bytes);
  OpenReceive* receive = *posted;
  absl::Status status;
  if (receive->bytes != bytes || receive->begun) {
    status = EndEarly(receive, Differing(tag, receive->bytes, bytes));
  } else {
    Unpost(receive);
    Deliver(*receive, kept.get());
    Recycle(receive);
  }
  stash_->Release(std::move(kept), bytes);
  return status;
}

void Receiver::Abandon(Landing* landing, const absl::Status& status) {
  landing->kept = nullptr;
  OpenReceive* receive = std::exchange(landing->receive, nullptr);
  if (receive == nullptr) return;
  Request* request = receive->request;
  Recycle(receive);
  if (!status.ok()) request->Done(status);
}

// Hands over a whole message that lies at `payload`, perhaps where it belongs already.
void Receiver::Deliver(const OpenReceive& receive, const std::byte* payload) {
  if (receive.bytes > 0 && payload != receive.destination) {
    if (receive.destination != nullptr) {
      std::memcpy(receive.destination, payload, receive.bytes);
    } else {
      receive.request->Take(0, {payload, receive.bytes});
    }
  }
  receive.request->Done(absl::OkStatus());
}

void Receiver::NoteTaken(size_t bytes) {
  if (taken_.OnTaken(bytes)) wire_->SendTaken(taken_.taken());
}

absl::Status Receiver::Keep(size_t bytes) {
  const size_t more = EagerCost(bytes);
  if (more > limits_.kept_bytes - std::min(limits_.kept_bytes, kept_bytes_)) {
    return ResourceExhausted(
        "sent more than {} bytes that nobody receives: it is too far ahead of rank {}; let it wait "
        "for its operations before it starts more",
        limits_.kept_bytes, limits_.rank);
  }
  kept_bytes_ += more;
  return absl::OkStatus();
}

// Messages that wait at their sender -------------------------------------------------------------

void Receiver::Invite(OpenReceive* receive, uint64_t send) {
  receive->id = ++last_id_;
  by_id_.emplace(receive->id, receive);
  wire_->SendInvitation(receive->tag, {.receive = receive->id,
                                       .bytes = receive->bytes,
                                       .in_order = receive->destination == nullptr,
                                       .send = send});
}

// A receive and the offer of its message meet, and the receive is in no table.
absl::Status Receiver::Accept(const OpenReceive& receive, const Offer& offer) {
  if (offer.bytes != receive.bytes) {
    // To receive 0, which is none: the sender learns the length that was expected.
    wire_->SendInvitation(
        receive.tag,
        {.bytes = receive.bytes, .in_order = receive.destination == nullptr, .send = offer.send});
    receive.request->Done(Differing(receive.tag, receive.bytes, offer.bytes));
    return absl::OkStatus();
  }
  if (offer.key.region != 0) {
    return wire_->Fetch(receive.tag, offer, receive.destination, receive.request);
  }
  wire_->Attend();
  OpenReceive* posted = Post(receive);
  posted->offered = true;
  Invite(posted, offer.send);
  return absl::OkStatus();
}

absl::Status Receiver::OnOffer(Tag tag, const Offer& offer) {
  uint64_t late = 0;
  if (late_offers_.Take(tag, &late)) {
    Release(0);
    return absl::OkStatus();
  }
  OpenReceive** posted = posted_.Find(tag);
  if (posted == nullptr) {
    TUTTI_RETURN_IF_ERROR(Keep(0));
    arrived_.Add(tag, {.copy = nullptr, .offer = offer});
    return absl::OkStatus();
  }
  OpenReceive* receive = *posted;
  if (receive->id == 0) {
    Unpost(receive);
    const OpenReceive accepted = *receive;
    Recycle(receive);
    return Accept(accepted, offer);
  }
  // It has invited the message before, so the sender knows the length that is expected.
  if (receive->bytes != offer.bytes) {
    return EndEarly(receive, Differing(tag, receive->bytes, offer.bytes));
  }
  posted_.Take(tag, &receive);
  receive->offered = true;
  return absl::OkStatus();
}

absl::Status Receiver::OnDiffers(uint64_t id, uint64_t bytes) {
  OpenReceive* receive = Find(id);
  if (receive == nullptr) return absl::OkStatus();  // it knows from the offer
  return EndEarly(receive, Differing(receive->tag, receive->bytes, bytes));
}

OpenReceive* Receiver::Find(uint64_t id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

absl::Status Receiver::Complete(OpenReceive* receive, bool offered) {
  if (offered && !receive->offered) {
    TUTTI_RETURN_IF_ERROR(Keep(0));
    late_offers_.Add(receive->tag, receive->id);
  }
  Remove(receive)->Done(absl::OkStatus());
  return absl::OkStatus();
}

// If bytes have come, the peer contradicts itself: then the link is to be ended, because the wire
// may be writing to the memory.
absl::Status Receiver::EndEarly(OpenReceive* receive, const absl::Status& status) {
  if (receive->begun) {
    return InvalidArgument("sent another length in the middle of message {}.{}",
                           receive->tag.operation, receive->tag.index);
  }
  Remove(receive)->Done(status);
  return absl::OkStatus();
}

// Tables -----------------------------------------------------------------------------------------

OpenReceive* Receiver::Post(const OpenReceive& receive) {
  if (free_.empty()) {
    all_.push_back(std::make_unique<OpenReceive>());
    free_.push_back(all_.back().get());
  }
  OpenReceive* posted = free_.back();
  free_.pop_back();
  *posted = receive;
  return posted;
}

// Takes it out of all tables.
void Receiver::Unpost(OpenReceive* receive) {
  if (receive->tagged && !receive->offered) {
    OpenReceive* same = nullptr;
    posted_.TakeIf(
        receive->tag, [&](const OpenReceive* other) { return other == receive; }, &same);
  }
  if (receive->id != 0) by_id_.erase(receive->id);
}

// The same, for good; returns its request.
Request* Receiver::Remove(OpenReceive* receive) {
  Unpost(receive);
  Request* request = receive->request;
  Recycle(receive);
  return request;
}

void Receiver::Recycle(OpenReceive* receive) { free_.push_back(receive); }

absl::Status Receiver::Differing(Tag tag, uint64_t expected, uint64_t got) const {
  return InvalidArgument("{}: message {}.{} has {} bytes, expected {}", wire_->Describe(),
                         tag.operation, tag.index, got, expected);
}

void Receiver::Close(const absl::Status& status) {
  std::vector<Request*> requests;
  posted_.TakeAll([&](Tag, OpenReceive* receive) {
    if (receive->id != 0) return;  // comes below
    requests.push_back(receive->request);
    Recycle(receive);
  });
  for (const auto& [id, receive] : std::exchange(by_id_, {})) {
    requests.push_back(receive->request);
    Recycle(receive);
  }
  for (Request* request : requests) request->Done(status);
}

void Receiver::DropKept() {
  arrived_.TakeAll([&](Tag, Arrived& arrived) {
    if (arrived.copy != nullptr) stash_->Release(std::move(arrived.copy), arrived.offer.bytes);
  });
}

}  // namespace tutti::net::message
