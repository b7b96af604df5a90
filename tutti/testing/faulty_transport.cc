#include "tutti/testing/faulty_transport.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::testing {

using net::Bytes;
using net::ConstBytes;
using net::MemoryKey;
using net::RegisteredMemory;
using net::Request;
using net::Tag;

FaultyTransport::FaultyTransport(std::unique_ptr<net::Transport> inner, const Faults& faults)
    : inner_(std::move(inner)),
      faults_(faults),
      random_(faults.seed),
      held_(static_cast<size_t>(inner_->size())),
      failed_(static_cast<size_t>(inner_->size())) {}

// Memory ----------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RegisteredMemory>> FaultyTransport::Allocate(size_t bytes) {
  return inner_->Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> FaultyTransport::Register(Bytes bytes) {
  return inner_->Register(bytes);
}

MemoryKey FaultyTransport::KeyOf(const void* data, size_t bytes) const {
  return inner_->KeyOf(data, bytes);
}

absl::StatusOr<std::byte*> FaultyTransport::Map(int peer, MemoryKey key, size_t bytes) {
  return inner_->Map(peer, key, bytes);
}

void FaultyTransport::Put(int peer, MemoryKey destination, ConstBytes source, Request* request) {
  inner_->Put(peer, destination, source, request);
}

void FaultyTransport::Get(int peer, MemoryKey source, Bytes destination, Request* request) {
  inner_->Get(peer, source, destination, request);
}

// Messages --------------------------------------------------------------------------------------

void FaultyTransport::Message::Done(const absl::Status& status) {
  done = true;
  if (request) request->Done(status);
}

bool FaultyTransport::Happens(double chance) {
  return chance > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < chance;
}

void FaultyTransport::Flip(Message& message) {
  if (message.data.empty() || !Happens(faults_.flip)) return;
  if (message.copy.empty()) message.copy.assign(message.data.begin(), message.data.end());
  message.data = message.copy;
  message.copy[random_() % message.copy.size()] ^= std::byte{1} << (random_() % 8);
  ++flipped_;
}

// Sends the message, or keeps it for later.
void FaultyTransport::Post(std::unique_ptr<Message> message) {
  auto& held = held_[static_cast<size_t>(message->peer)];
  const bool late = Happens(faults_.delay);
  if (!late && held.empty()) {
    Forward(std::move(message)).IgnoreError();  // a link that is over says so by itself
    return;
  }
  if (late) {
    message->due = NowNanos() + faults_.delay_nanos;
    ++delayed_;
  }
  next_due_.store(std::min(next_due_.load(), message->due));
  held.push_back(std::move(message));
}

absl::Status FaultyTransport::Forward(std::unique_ptr<Message> message) {
  if (message->request == nullptr) {
    return inner_->SendShort(message->peer, message->tag, message->data);
  }
  Message* sent = message.get();
  under_way_.push_back(std::move(message));
  inner_->Send(sent->peer, sent->tag, sent->data, sent);
  return absl::OkStatus();
}

void FaultyTransport::Send(int peer, Tag tag, ConstBytes data, Request* request) {
  if (peer < 0 || peer >= size()) return inner_->Send(peer, tag, data, request);
  if (messages_++ == faults_.cut_after) Cut(peer);
  const absl::Status& failed = failed_[static_cast<size_t>(peer)];
  if (!failed.ok()) return request->Done(failed);
  if (Happens(faults_.drop)) {
    ++dropped_;
    return request->Done(absl::OkStatus());
  }
  auto message = std::make_unique<Message>();
  message->peer = peer;
  message->tag = tag;
  message->data = data;
  message->request = request;
  Flip(*message);
  Post(std::move(message));
}

absl::Status FaultyTransport::SendShort(int peer, Tag tag, ConstBytes data) {
  if (peer < 0 || peer >= size() || data.size() > kShortBytes) {
    return inner_->SendShort(peer, tag, data);
  }
  if (messages_++ == faults_.cut_after) Cut(peer);
  TUTTI_RETURN_IF_ERROR(failed_[static_cast<size_t>(peer)]);
  if (Happens(faults_.drop)) {
    ++dropped_;
    return absl::OkStatus();
  }
  auto message = std::make_unique<Message>();
  message->peer = peer;
  message->tag = tag;
  message->copy.assign(data.begin(), data.end());
  message->data = message->copy;
  Flip(*message);
  if (held_[static_cast<size_t>(peer)].empty() && faults_.delay == 0) {
    return Forward(std::move(message));
  }
  Post(std::move(message));
  return absl::OkStatus();
}

void FaultyTransport::Receive(int peer, Tag tag, std::byte* destination, size_t bytes,
                              Request* request) {
  inner_->Receive(peer, tag, destination, bytes, request);
}

// Progress --------------------------------------------------------------------------------------

bool FaultyTransport::Release() {
  if (next_due_.load() == INT64_MAX) return false;
  const int64_t now = NowNanos();
  int64_t next = INT64_MAX;
  bool moved = false;
  for (auto& held : held_) {
    while (!held.empty() && held.front()->due <= now) {
      std::unique_ptr<Message> message = std::move(held.front());
      held.pop_front();
      Forward(std::move(message)).IgnoreError();
      moved = true;
    }
    if (!held.empty()) next = std::min(next, held.front()->due);
  }
  next_due_.store(next);
  return moved;
}

bool FaultyTransport::Progress() {
  bool moved = Release();
  moved |= inner_->Progress();
  std::erase_if(under_way_, [](const auto& message) { return message->done; });
  return moved;
}

void FaultyTransport::Wait(int64_t timeout_nanos) {
  const int64_t due = next_due_.load();
  if (due != INT64_MAX) timeout_nanos = std::min(timeout_nanos, due - NowNanos());
  if (timeout_nanos > 0) inner_->Wait(timeout_nanos);
}

// Links -----------------------------------------------------------------------------------------

void FaultyTransport::DropHeld(int peer, const absl::Status& status) {
  auto held = std::exchange(held_[static_cast<size_t>(peer)], {});
  for (auto& message : held) message->Done(status);
}

void FaultyTransport::Cut(int peer) {
  const absl::Status status = Unavailable("{}: the link was cut", Describe(peer));
  Fail(peer, status);
  broken_.push_back({.peer = peer, .status = status});
}

void FaultyTransport::Fail(int peer, const absl::Status& status) {
  failed_[static_cast<size_t>(peer)] = status;
  inner_->Fail(peer, status);
  DropHeld(peer, status);
}

bool FaultyTransport::NextBroken(BrokenLink* broken) {
  if (broken_.empty()) return inner_->NextBroken(broken);
  *broken = std::move(broken_.front());
  broken_.pop_front();
  return true;
}

}  // namespace tutti::testing
