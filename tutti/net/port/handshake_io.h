#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tutti/net/handshake.h"

namespace tutti::net {

// Drives a Handshake over a non-blocking socket.
class HandshakeIo {
 public:
  HandshakeIo(const Identity& own, bool connecting, int expected_peer,
              Handshake::Admit admit = nullptr)
      : handshake_(own, connecting, expected_peer, std::move(admit)) {}
  // Between tasks, of the connecting side.
  HandshakeIo(const Identity& own, std::string expected_task)
      : handshake_(own, std::move(expected_task)) {}

  // Sends the first words. Call it once, when the socket is connected.
  absl::Status Start(int fd);
  // Goes on with what has arrived. OK and done(), OK and not yet, or why it failed: the other end's
  // reason or ours, of which the other end was told.
  absl::Status Continue(int fd);

  bool done() const { return handshake_.state() == Handshake::State::kDone; }
  const Identity& peer() const { return handshake_.peer(); }
  Refusal refusal() const { return handshake_.refusal(); }

 private:
  absl::Status Failure() const;

  Handshake handshake_;
};

}  // namespace tutti::net
