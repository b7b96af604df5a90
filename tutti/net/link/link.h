#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/transport.h"

// Links between tasks: how a cluster's steps and tensors travel. A Transport joins a fixed number
// of ranks for collectives; a Link joins two processes, comes when it is first needed, and goes
// with either of them.
namespace tutti::net {

// Who stands at one end of a link: a task, and which start of its process.
struct TaskIdentity {
  std::string task;          // "/job:worker/task:1"; "client" for a process that is no task
  uint64_t incarnation = 0;  // of the process

  bool operator==(const TaskIdentity&) const = default;
};

// Bytes that a message carries beside its header, and what keeps them alive.
struct Payload {
  ConstBytes bytes;
  std::shared_ptr<const void> owner;
};

// One end of a link. Each message arrives complete, exactly once, and in the order of Send, with
// one exception: a message whose bytes do not count in the window may overtake messages that wait
// for the window. Messages without payloads are sent together if they come faster than they can be
// written. Thread-safe.
class Link {
 public:
  virtual ~Link() = default;

  // The incarnation is 0 while the link is being opened and the task's is not known yet.
  virtual const TaskIdentity& peer() const = 0;
  virtual LinkKind kind() const = 0;         // kMemory on one host, kSocket between hosts
  virtual std::string Describe() const = 0;  // "/job:ps/task:0 (10.0.0.7:2222, tcp)"

  // Sends one message. Returns at once: the link holds the owners until it has no use for the
  // bytes, which must not change before that. On a broken link the message is dropped; Broken has
  // told.
  virtual void Send(std::string header, std::vector<Payload> payloads) = 0;
  // The same for a message that the receiver may keep for long: its header counts in the window
  // like a payload, so it waits, too.
  virtual void SendCounted(std::string header, std::vector<Payload> payloads) = 0;

  // The receiver no longer keeps `bytes` of a message waiting (its payloads, and its header if that
  // counts): the node that wanted the value took it, or it was dropped. This is the link's
  // back-pressure: bytes that are sent and not taken are bounded by the window; once it is full,
  // the sender's messages that count wait in their queue.
  virtual void Taken(uint64_t bytes) = 0;

  // Ends the link with `reason`, which the peer is told, after what was sent. Broken follows on
  // both sides.
  virtual void Close(absl::Status reason) = 0;

  struct Counters {
    uint64_t messages_sent = 0, bytes_sent = 0;
    uint64_t messages_received = 0, bytes_received = 0;
    uint64_t refused = 0;  // of an older incarnation or a malformed kind
  };
  virtual Counters counters() const = 0;
};

// What a link tells its owner, on a thread of the links. No call may block, and none is made for
// one link by two threads at once.
class LinkEvents {
 public:
  virtual ~LinkEvents() = default;

  // The header of a message with payloads of these sizes has come: where are they to go? The places
  // stay valid until Received or Broken. Not called where one of the payloads can be read in place
  // (shared memory that the sender wrote into; the others then have an owner, too), and not for
  // messages without payloads. An error ends the link.
  virtual absl::Status Place(Link& link, std::string_view header, std::span<const uint64_t> sizes,
                             std::span<Bytes> places) = 0;
  // A message is there. Payloads that were placed have no owner; those that are read in place have
  // one, and stay valid as long as it is held.
  virtual void Received(Link& link, std::string_view header, std::vector<Payload> payloads) = 0;
  // The link is over; the last call. UNAVAILABLE when the peer died.
  virtual void Broken(Link& link, const absl::Status& reason) = 0;
};

}  // namespace tutti::net
