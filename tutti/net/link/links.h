#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/handshake.h"
#include "tutti/net/link/link.h"
#include "tutti/net/link/shared_memory.h"
#include "tutti/net/port/port.h"

namespace tutti::net {

// The incarnation of a process that starts now: greater than those of earlier starts on hosts whose
// clocks agree to a millisecond, and no two are equal.
uint64_t MakeIncarnation();

struct LinksOptions {
  Identity identity;            // job, token, task and incarnation of this process
  double connect_seconds = 10;  // for a link to stand, from To
  // A peer that has sent nothing for this long is lost. Idle links exchange heartbeats.
  double silence_seconds = 4;
  uint64_t window_bytes = uint64_t{256} << 20;  // of payloads that came and were not taken, a link
  bool shared_memory = true;                    // joins memory with tasks of this host
  std::shared_ptr<SharedMemory> memory;         // what memory() gives; null: one of its own
  // True: a later process of a task is refused with ALREADY_EXISTS while the earlier one, to which
  // a link is open, still sends heartbeats; the earlier one has half of silence_seconds to send
  // one. False: the later process replaces it at once, because tasks restart.
  bool first_stays = false;
  bool checksums = true;  // of payloads between hosts; heads have theirs everywhere
  // How long the links' thread polls for more before it sleeps (EventLoop). Longer than two
  // wake-ups, or two sides that answer each other would both go to sleep in every turn.
  int64_t spin_nanos = 100'000;
};

// All links of a process. A link is opened when it is first asked for, accepted when another task
// asks, and belongs to (task, incarnation) at both ends: there is one at a time. When a task
// restarts, the link of its earlier incarnation breaks, and older incarnations are refused. If both
// sides open at the same time, one link comes out of it. One thread serves all links.
// Thread-safe.
class Links {
 public:
  // `events` outlives the Links.
  static absl::StatusOr<std::unique_ptr<Links>> Create(LinksOptions options, LinkEvents* events);
  // Closes all links, waits at most 2 s until what was sent has left, and tells of their end.
  // Destroy the ports before. Link objects may outlive it; they are broken.
  virtual ~Links() = default;

  // Lets others open links through the port. Before its Start.
  virtual void Serve(Port* port) = 0;

  // The link to the task, and its opening where there is none: messages can be sent at once, and
  // leave when it stands. `incarnation` 0: whichever is there; where another answers, the link
  // breaks with ABORTED. Where it cannot be reached, it breaks with UNAVAILABLE.
  virtual std::shared_ptr<Link> To(const std::string& task, const std::string& address,
                                   uint64_t incarnation = 0) = 0;
  // The links that are being opened or stand.
  virtual std::vector<std::shared_ptr<Link>> All() const = 0;

  // Memory from which payloads reach tasks of this host without a copy.
  virtual const std::shared_ptr<SharedMemory>& memory() const = 0;

  // Connections refused because a later incarnation of their task is known.
  virtual uint64_t refused() const = 0;
};

}  // namespace tutti::net
