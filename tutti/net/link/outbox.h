#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/link/frame.h"
#include "tutti/net/link/link.h"
#include "tutti/net/link/shared_memory.h"

namespace tutti::net::link {

// What leaves through a link: queue, window, and the writing of frames to the socket. Not
// thread-safe: the link's lock guards it.
//
// A message of which something counts waits while the window is full of bytes that the peer has not
// taken; any other never does. Messages without payloads join the last frame of the queue as long
// as nothing of it was written: the slower the socket, the more of them share a frame, its checksum
// and a system call. On a link that joins memory, payloads of SharedMemory::kLeastBytes and more
// are named, not written: those that lie in shared memory where they are, others after a copy into
// it.
class Outbox {
 public:
  struct Terms {
    uint64_t window = 0;
    bool checksums = false;
    std::shared_ptr<SharedMemory> memory;  // null: no memory is joined
  };

  // Messages may leave from now on.
  void Open(Terms terms);

  // `counted`: the header counts in the window like a payload.
  void Send(std::string header, std::vector<Payload> payloads, bool counted = false);
  void SendControl(FrameKind kind, uint64_t number = 0, std::string_view text = {});
  // A sign of life, if nothing is about to be written; it passes a frame that is still being
  // copied.
  void SendPing();
  // After this nothing is taken any more. The frame leaves when all before it has.
  void SendClose(const absl::Status& reason);

  // The peer has taken so many bytes of payloads so far.
  absl::Status OnTaken(uint64_t total);
  absl::Status OnReleased(uint64_t message);
  // Tells the peer of regions that are gone.
  void ForgetRegions();

  enum class Result : uint8_t {
    kDone,   // all has left that may
    kFull,   // the socket takes no more at the moment
    kAgain,  // the budget is used up, or there are bytes to copy, which `may_copy` forbids
    kLost,   // `error` has errno
  };
  Result Write(int fd, size_t budget, bool may_copy, int* error);
  // Nothing could be written.
  bool idle() const { return queue_.empty(); }
  // Everything has left, and the closing frame behind it.
  bool closed() const { return closing_ && !close_held_ && queue_.empty(); }
  // Bytes of what waits to be written first, up to `limit`.
  size_t FrontBytes(size_t limit) const;

  // What has no use any more; to be destroyed outside of the lock.
  std::vector<Payload> TakeDone() { return std::exchange(done_, {}); }
  // Drops all that waits.
  void Drop();
  // Begins anew on another connection. REQUIRES: not open.
  void Restart();

  uint64_t messages() const { return messages_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Message {
    std::string header;
    std::vector<Payload> payloads;
    uint64_t bytes = 0;  // that count in the window
  };
  // The rest of a payload that is to be copied into shared memory before the frame leaves.
  struct Copy {
    Payload from;
    std::byte* to;
  };
  // The checksum of the first bytes of a payload.
  struct Sum {
    uint32_t crc = 0;
    size_t covered = 0;
    void Cover(ConstBytes bytes);  // from the payload's start
  };
  struct Frame {
    std::string head;              // with the body
    std::vector<Payload> written;  // payloads that follow
    std::vector<Sum> sums;         // of them, where the terms want that
    std::vector<Payload> kept;     // what is read in place, until it is released
    std::vector<Copy> copies;
    std::shared_ptr<const SharedMemory::Region> region;  // whose file goes with the frame
    uint64_t number = 0;
    bool open = false;  // more messages may join it; its head is not written yet
    uint64_t bytes() const;
  };
  struct Batch;

  bool HasRoom(uint64_t bytes) const {
    return in_window_ == 0 || in_window_ + bytes <= terms_.window;
  }
  void Release();  // what waits, as far as there is room
  void Queue(Message message);
  void QueueBare(const std::string& header);
  void QueueOrHold(Message message);
  PayloadPlace PlaceOf(Payload payload, Frame* frame);
  bool CanAnnounce(uint32_t region);
  void Announce(const std::shared_ptr<const SharedMemory::Region>& region);
  bool CopySome(Frame* frame, size_t* budget);
  void Fill(Batch* batch, size_t budget);
  void Advance(size_t bytes);

  Terms terms_;
  bool open_ = false;
  bool closing_ = false;
  bool close_held_ = false;  // the closing frame is not in the queue yet
  std::string close_frame_;
  std::deque<Message> held_;  // before Open, or for want of room
  std::deque<Frame> queue_;
  std::string spare_;  // memory of a frame that has left
  // Of the first frame: segment 0 is its head, then payload and checksum in turn.
  size_t segment_ = 0;
  size_t offset_ = 0;
  uint64_t in_window_ = 0;
  uint64_t sent_ = 0;   // bytes that count, ever
  uint64_t taken_ = 0;  // of them
  bool told_waiting_ = false;
  uint64_t next_number_ = 1;
  std::map<uint64_t, std::vector<Payload>> unreleased_;  // by message
  std::map<uint32_t, std::weak_ptr<const SharedMemory::Region>> announced_;
  std::vector<Payload> done_;
  uint64_t messages_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace tutti::net::link
