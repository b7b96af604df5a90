#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/net/coordination/control_link.h"
#include "tutti/net/coordination/control_message.h"
#include "tutti/net/event_loop.h"
#include "tutti/net/handshake.h"
#include "tutti/net/refusal_log.h"
#include "tutti/net/socket.h"
#include "tutti/net/transport.h"

namespace tutti::net {

// Rank 0's listening socket, and the connections that are not identified yet. A connection for
// control has kArrivalNanos until its kJoin message must have arrived; one for another purpose goes
// to who serves it when its handshake is over. Late, malformed or foreign connections
// are refused with one log line and do not affect others. At most kMaxArrivals wait at a time; the
// next one closes the oldest. Used on the loop's thread, and lives until the loop ends.
class StarDoor {
 public:
  static constexpr int64_t kArrivalNanos = 5'000'000'000;
  static constexpr size_t kMaxArrivals = 128;

  struct Callbacks {
    // May this rank still come? Asked at the end of its handshake.
    Handshake::Admit admit;
    // It has sent its kJoin. OK: the link is kept by whoever answers; else the rank is refused.
    std::function<absl::Status(const Identity& peer, const std::string& host,
                               const ControlMessage& join, std::unique_ptr<ControlLink>* link)>
        join;
    // A connection that claimed this rank (kNoRank: claimed none) was refused.
    std::function<void(int rank, const std::string& why)> refused;
    // A connection could not be accepted: errno of a lack of descriptors or memory.
    std::function<void(int error)> exhausted;
  };

  // Who takes the connections for another purpose than control; as Star::Serve.
  struct Service {
    std::function<void(const Identity& peer, Socket socket)> handler;
    Handshake::Admit admit;
  };

  // `own` is for any purpose and any size.
  StarDoor(EventLoop* loop, const Identity& own, Socket listener, Callbacks callbacks);
  ~StarDoor();
  StarDoor(const StarDoor&) = delete;
  StarDoor& operator=(const StarDoor&) = delete;

  absl::Status Open();
  void Serve(Identity::Purpose purpose, Service service);

 private:
  struct Arrival {
    Socket socket;  // until the handshake is over
    uint64_t watch = 0;
    Handshake handshake;
    std::unique_ptr<ControlLink> link;  // after that
    int64_t deadline = 0;
    std::string from;  // "10.0.0.7:4711"
    std::string host;
  };
  using Place = std::list<Arrival>::iterator;

  void Accept();
  void AcceptOne(Socket socket);
  Refusal Admit(const Identity& peer, std::string* why) const;
  void OnEvents(Place arrival);
  void AfterHandshake(Place arrival);  // the handshake is done
  void Join(Place arrival, const ControlMessage& message);
  void Refuse(Place arrival, std::string_view why);
  void Sweep();
  void LogRefusal(const Arrival& arrival, std::string_view why);

  EventLoop* const loop_;
  const Identity own_;
  Socket listener_;
  const Callbacks callbacks_;
  std::map<Identity::Purpose, Service> services_;
  uint64_t watch_ = 0;
  std::list<Arrival> arrivals_;  // the oldest first
  RefusalLog refusals_;
};

}  // namespace tutti::net
