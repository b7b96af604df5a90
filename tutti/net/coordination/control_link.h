#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/net/coordination/control_message.h"
#include "tutti/net/event_loop.h"
#include "tutti/net/socket.h"

namespace tutti::net {

// A connection of the control plane, after its handshake: messages in, messages out, on the thread
// of an event loop. Sending never waits: what the socket does not take stays in a queue.
class ControlLink {
 public:
  // Called with each message, in order; with a bad message; and, after all messages that came
  // before it, with the end of the connection. After a bad message or the end nothing more comes.
  // A callback may destroy the link.
  struct Callbacks {
    std::function<void(ControlMessage message)> message;
    std::function<void(const absl::Status& why)> bad;
    std::function<void(const std::string& how)> closed;  // "its connection closed"
  };

  ControlLink(EventLoop* loop, Socket socket, ControlReader reader);
  ~ControlLink();  // closes gently
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Starts reading.
  absl::Status Open(Callbacks callbacks);
  // From the next message on, these are called.
  void Redirect(Callbacks callbacks);
  // Delivers what `reader` was given with.
  void DeliverHeld() { Deliver(alive_); }
  void set_max_bytes(size_t bytes) { reader_.set_max_bytes(bytes); }

  void Send(const ControlMessage& message);
  void Send(std::shared_ptr<const std::string> encoded);
  // Nothing is waiting to be sent.
  bool idle() const { return queue_.empty(); }
  // Gives the socket another chance to take what is queued.
  void Flush();
  int fd() const { return socket_.fd(); }
  // When bytes last came in, in NowNanos.
  int64_t last_heard() const { return last_heard_; }
  void set_last_heard(int64_t nanos) { last_heard_ = nanos; }

 private:
  void OnEvents(uint32_t events);
  // False when the link is over, or gone.
  bool Deliver(const std::weak_ptr<bool>& alive);
  void StopReading();

  EventLoop* const loop_;
  Socket socket_;
  ControlReader reader_;
  std::shared_ptr<const Callbacks> callbacks_;
  uint64_t watch_ = 0;
  bool reading_ = false;
  bool writable_ = true;
  std::deque<std::shared_ptr<const std::string>> queue_;
  size_t sent_ = 0;  // of the first in the queue
  int64_t last_heard_ = 0;
  // Expires with the link: how a loop over messages knows that a callback has destroyed it.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace tutti::net
