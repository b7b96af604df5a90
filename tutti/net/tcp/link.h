#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/handshake.h"
#include "tutti/net/message/engine.h"
#include "tutti/net/poller.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/frame_reader.h"
#include "tutti/net/tcp/inbox.h"
#include "tutti/net/tcp/outbox.h"

namespace tutti::net::tcp {

struct Shared;
class Link;

// A connection that the peer made, from which this rank reads.
class InStream final : public EventHandler, private FrameSink {
 public:
  InStream(Shared* shared, Link* link, Socket socket, uint32_t number);
  ~InStream();

  void OnEvents(uint32_t events) override;
  // Ends the request of the frame that is being read, and closes.
  void Close(const absl::Status& status);

  int fd() const { return socket_.fd(); }
  uint32_t number() const { return number_; }
  bool closed() const { return !socket_.valid(); }
  bool Uses(const message::Region& region) const { return landing_.region.get() == &region; }

 private:
  absl::Status BeginFrame(const FrameHeader& header, std::byte** target) override;
  absl::Status EndFrame(const FrameHeader& header, std::byte* payload) override;

  Shared* const shared_;
  Link* const link_;
  Socket socket_;
  const uint32_t number_;
  FrameReader reader_;
  Landing landing_;
};

// All that this rank has to do with one peer: the connections either made, and the requests.
//
// A link ends in one of two ways. Break: something came that must not come, and nothing more is
// believed. LoseConnection: the peer has gone; what it sent before is still read from its other
// connections, until each has ended or nothing comes for a while. Both only take note; the
// transport calls Close when the events in hand are handled, and Close ends the requests.
class Link {
 public:
  Link(Shared* shared, int peer);

  // Looks the name up.
  absl::Status SetEndpoint(std::string_view endpoint);
  int peer() const { return peer_; }
  // Whether the endpoint is an address of this host.
  bool on_this_host() const { return on_this_host_; }
  std::string Describe() const;

  // False: requests end with status() at once, and no stream moves anything.
  bool alive() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  Outbox& out() { return out_; }
  Inbox& in() { return in_; }
  message::Engine& engine() { return engine_; }
  // Transport::Send and Receive, while it is alive.
  void Send(Tag tag, ConstBytes data, Request* request);
  void Receive(Tag tag, std::byte* destination, size_t bytes, Request* request);

  // Whether a connection that the peer makes is welcome, and what becomes of it.
  Refusal Admit(uint32_t stream, std::string* why) const;
  absl::Status Adopt(Socket socket, uint32_t stream);

  // `status` is about the peer, and gets its description in front.
  void Break(const absl::Status& status);
  void LoseConnection(std::string_view cause);
  void NoteRead();
  // Memory that the caller takes back: if a stream is at it, the link breaks.
  void Withdraw(const message::Region& region);
  void CheckDeadlines(int64_t now);
  // Closes every connection and ends every request. REQUIRES: no event is being handled.
  void Close(const absl::Status& status);
  // The peer has gone, but all it sent before has arrived whole and may still be received.
  bool lost() const { return lost_; }
  // The caller gave the peer up: nothing of it is wanted any more.
  void Forget() { lost_ = false; }

 private:
  bool AllRead() const;
  void GiveUp();

  Shared* const shared_;
  const int peer_;
  std::string endpoint_ = "not connected yet";
  bool on_this_host_ = false;
  absl::Status status_;
  bool losing_ = false;
  bool lost_ = false;
  std::string cause_;      // of losing_
  int64_t last_read_ = 0;  // since losing_
  Outbox out_;
  message::Engine engine_;
  Inbox in_;
  std::vector<std::unique_ptr<InStream>> in_streams_;
};

}  // namespace tutti::net::tcp
