#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/tcp/frame.h"

namespace tutti::net::tcp {

// Where the frames of a connection go. An error ends the reading.
class FrameSink {
 public:
  // A header came. `*target` is set to where its payload goes (may stay null where there is none).
  virtual absl::Status BeginFrame(const FrameHeader& header, std::byte** target) = 0;
  // The payload is there, and its checksum is right.
  virtual absl::Status EndFrame(const FrameHeader& header, std::byte* payload) = 0;

 protected:
  ~FrameSink() = default;
};

// Cuts the bytes of a connection into frames. A payload is received where the sink wants it, by the
// same system call that reads ahead into a buffer for what follows; only what was read ahead is
// copied. So many small frames cost one call, and a large one no copy.
class FrameReader {
 public:
  // `read_ahead`: large for a stream of small frames, small for one of large ones.
  explicit FrameReader(size_t read_ahead);

  struct Outcome {
    absl::Status status;  // a frame that is damaged or not allowed; the sink's error
    bool closed = false;  // the peer closed the connection, or it was lost
    int error = 0;        // with closed: errno, or 0 for a regular end
    size_t moved = 0;     // bytes
  };
  // Reads what is there, up to about `budget` bytes.
  Outcome Read(int fd, size_t budget, FrameSink* sink);

  // True if the bytes so far end in the middle of a frame.
  bool inside_frame() const { return in_payload_ || begin_ < end_; }

 private:
  absl::Status Consume(FrameSink* sink);
  void Advance(size_t bytes);

  std::vector<std::byte> buffer_;
  size_t begin_ = 0;  // [begin_, end_) of the buffer was read and not used yet
  size_t end_ = 0;

  bool in_payload_ = false;
  FrameHeader header_;
  std::byte* target_ = nullptr;
  size_t done_ = 0;  // bytes of the payload
  uint32_t crc_ = 0;
};

}  // namespace tutti::net::tcp
