#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tutti/net/poller.h"
#include "tutti/net/port/handshake_io.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

struct Shared;
class Link;
struct BulkMessage;

// A frame on its way out.
struct OutFrame {
  HeaderBytes header;
  ConstBytes payload;              // the caller's, until it is written
  std::string owned;               // or a payload that belongs to the frame
  Request* request = nullptr;      // is done when the frame is written
  BulkMessage* message = nullptr;  // of which it is a part

  ConstBytes body() const { return owned.empty() ? payload : std::as_bytes(std::span(owned)); }
};

// Gives a stream its work.
class FrameSource {
 public:
  // The next frame for the stream; false if there is none.
  virtual bool NextFrame(int stream, OutFrame* frame) = 0;
  virtual bool HasFrames(int stream) const = 0;
  // The kernel has all of it.
  virtual void Written(const OutFrame& frame) = 0;

 protected:
  ~FrameSource() = default;
};

// A connection that this rank made, on which it sends. The peer only answers the handshake; after
// that nothing comes back but the end. So when this rank closes it, no unread byte can turn the
// close into a reset that would destroy what is still on its way.
class OutStream final : public EventHandler {
 public:
  OutStream(Shared* shared, Link* link, FrameSource* source, int number);
  ~OutStream();

  // `send_buffer`: bytes that the socket holds; 0: as many as the system likes.
  void Connect(const Address& address, int send_buffer);
  // Puts a frame behind those that wait, and writes if that is possible.
  void Push(OutFrame frame);
  // Writes frames, from the queue or else from the source, until the socket is full, nothing is
  // left, or others should have their turn.
  void Pump();
  void OnEvents(uint32_t events) override;
  // Ends the requests of the frames that wait, and closes.
  void Close(const absl::Status& status);

  int number() const { return number_; }
  int fd() const { return socket_.fd(); }
  bool closed() const { return state_ == State::kClosed; }
  bool queue_empty() const { return queue_.empty(); }
  // 0: none.
  int64_t deadline() const { return deadline_; }
  // Events that it waits for.
  uint32_t wanted() const { return wanted_; }

 private:
  enum class State : uint8_t { kNew, kConnecting, kHandshake, kOpen, kClosed };

  void FinishConnecting();
  void ContinueHandshake();
  void LookForEnd();
  bool WriteOnce(size_t* budget);
  void Advance(size_t bytes);
  void Want(uint32_t events);
  void Lose(const std::string& cause);

  Shared* const shared_;
  Link* const link_;
  FrameSource* const source_;
  const int number_;
  State state_ = State::kNew;
  Socket socket_;
  uint32_t wanted_ = 0;
  int64_t deadline_ = 0;
  std::optional<HandshakeIo> handshake_;
  std::deque<OutFrame> queue_;
  size_t written_ = 0;  // bytes of the first frame in the queue
};

}  // namespace tutti::net::tcp
