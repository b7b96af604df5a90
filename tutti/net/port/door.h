#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tutti/net/handshake.h"
#include "tutti/net/poller.h"
#include "tutti/net/refusal_log.h"
#include "tutti/net/socket.h"

namespace tutti::net {

// Accepts connections at a listening socket, and hands over those that pass the handshake. All
// others are closed with one log line: those that send something wrong, those that send nothing in
// time, and, if too many are in the handshake, those that have been silent longest. Driven by the
// thread that drives the poller; has no thread of its own and is not thread-safe.
class Door final : public EventHandler {
 public:
  struct Options {
    std::string who;               // begins the log lines: "rank 1 (10.0.0.7:4711, tcp)"
    double handshake_seconds = 5;  // that a connection may take to say who it is
    int max_pending = 128;         // connections that have not said it yet
  };
  struct Hooks {
    Handshake::Admit admit;
    std::function<void(const Identity& peer, Socket socket)> adopt;
    std::function<void()> moved;           // something happened; Sweep is to be called soon
    std::function<void(int64_t)> wake_by;  // call CheckDeadlines at that time of NowNanos
  };

  Door(Poller* poller, const Identity& own, Options options, Hooks hooks);
  ~Door();

  // Begins to accept at a socket that listens already.
  absl::Status Open(Socket listening);

  void OnEvents(uint32_t events) override;
  // Refuses who has been silent for too long.
  void CheckDeadlines(int64_t now);
  // Forgets the connections that are over. REQUIRES: no event is being handled.
  void Sweep();

 private:
  class Pending;

  void Add(Socket socket, const Address& from);
  void RefuseForWantOfDescriptors();
  void LogRefusal(const std::string& from, std::string_view why);

  Poller* const poller_;
  const Identity own_;
  const Options options_;
  const Hooks hooks_;
  Socket socket_;
  // Given up to accept, and so refuse, a connection when there are no descriptors left.
  Socket spare_;
  RefusalLog refusals_;
  std::list<std::unique_ptr<Pending>> pending_;  // oldest first
  int waiting_ = 0;                              // of pending_, those that are not over
};

}  // namespace tutti::net
