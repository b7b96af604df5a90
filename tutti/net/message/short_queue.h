#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tutti/net/message/fifo.h"
#include "tutti/net/transport.h"

namespace tutti::net::message {

// Short messages that have arrived and were not taken. Not thread-safe.
class ShortQueue {
 public:
  size_t size() const { return messages_.size(); }

  // REQUIRES: payload.size() <= Transport::kShortBytes.
  void Add(int peer, Tag tag, ConstBytes payload) {
    Transport::ShortMessage& message = messages_.emplace_back();
    message.peer = peer;
    message.tag = tag;
    message.bytes = static_cast<uint32_t>(payload.size());
    if (!payload.empty()) std::memcpy(message.data, payload.data(), payload.size());
  }

  // Transport::NextShort.
  bool Take(Transport::ShortMessage* message) {
    if (messages_.empty()) return false;
    const Transport::ShortMessage& first = messages_.front();
    message->peer = first.peer;
    message->tag = first.tag;
    message->bytes = first.bytes;
    std::memcpy(message->data, first.data, first.bytes);
    messages_.pop_front();
    return true;
  }

 private:
  Fifo<Transport::ShortMessage> messages_;
};

}  // namespace tutti::net::message
