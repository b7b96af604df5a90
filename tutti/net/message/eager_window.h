#pragma once

#include <cstddef>
#include <cstdint>

// Back-pressure for eager messages. Small messages are sent without asking, and the receiver
// buffers those that have no Receive yet. Both ends count: the sender what it has sent, the
// receiver what was taken, which it reports now and then. Beyond the window a message waits at the
// sender, like a large one, so the memory that a rank far ahead occupies at its peer is bounded.
namespace tutti::net::message {

// What a message costs: its own bytes, and what is kept beside them.
constexpr uint64_t EagerCost(size_t bytes) { return bytes + 64; }

class EagerSender {
 public:
  explicit EagerSender(uint64_t window) : window_(window) {}

  // True, and it is counted, if a message of so many bytes may go without asking.
  bool TrySend(size_t bytes) {
    if (sent_ - taken_ + EagerCost(bytes) > window_) return false;
    sent_ += EagerCost(bytes);
    return true;
  }
  // What the receiver says that it has taken since the beginning. False if that cannot be.
  bool OnTaken(uint64_t taken) {
    if (taken < taken_ || taken > sent_) return false;
    taken_ = taken;
    return true;
  }

 private:
  uint64_t window_;
  uint64_t sent_ = 0;   // cost of all messages
  uint64_t taken_ = 0;  // of these
};

class EagerReceiver {
 public:
  explicit EagerReceiver(uint64_t window) : step_(window / 4) {}

  // A message was taken. True if the sender should be told how much has been.
  bool OnTaken(size_t bytes) {
    taken_ += EagerCost(bytes);
    if (taken_ - told_ <= step_) return false;
    told_ = taken_;
    return true;
  }
  uint64_t taken() const { return taken_; }

 private:
  uint64_t step_;
  uint64_t taken_ = 0;
  uint64_t told_ = 0;
};

}  // namespace tutti::net::message
