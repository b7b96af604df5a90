#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "tutti/net/message/eager_window.h"
#include "tutti/net/message/tag_table.h"
#include "tutti/net/message/wire.h"
#include "tutti/net/transport.h"

namespace tutti::net::message {

// The sending half of the engine (tutti/net/message/engine.h): what goes at once, what waits for
// the peer, and the peer's answers. An error means that the peer breaks the rules, and the link is
// to be ended. Not thread-safe.
class Sender {
 public:
  Sender(Wire* wire, const Limits& limits)
      : wire_(wire), eager_bytes_(limits.eager_bytes), window_(limits.window) {}

  // The caller's side: Transport::Send. An error ends the link.
  absl::Status Send(Tag tag, ConstBytes data, Request* request) {
    if (data.size() <= eager_bytes_ && invitations_.empty() && waiting_.empty() &&
        window_.TrySend(data.size())) {
      wire_->SendEager(tag, data, request);
      return absl::OkStatus();
    }
    return SendLater(tag, data, request);
  }

  absl::Status OnInvitation(Tag tag, const Invitation& invitation);
  // The peer has fetched an offered message.
  absl::Status OnFetched(Tag tag, uint64_t send);
  absl::Status OnTaken(uint64_t taken);

  bool HasOpen() const { return !waiting_.empty(); }
  void Close(const absl::Status& status);

 private:
  struct Waiting {
    uint64_t id = 0;
    ConstBytes data;
    Request* request = nullptr;
    bool fetched = false;  // by the peer: no invitation is expected
  };

  absl::Status SendLater(Tag tag, ConstBytes data, Request* request);
  absl::Status Answer(Tag tag, const Invitation& invitation, const Waiting& send, bool offered);

  Wire* const wire_;
  const size_t eager_bytes_;
  EagerSender window_;
  uint64_t last_id_ = 0;
  TagTable<Waiting> waiting_;         // offered
  TagTable<Invitation> invitations_;  // without their Send
};

}  // namespace tutti::net::message
