#pragma once

#include <memory>
#include <vector>

namespace tutti::net {

// Something with messages to write: a link.
class SendQueue {
 public:
  virtual ~SendQueue() = default;
  // Writes the queued messages if that does not block, else hands them to the link's thread.
  // Thread-safe.
  virtual void WriteQueued() = 0;
};

// While an instance exists, messages that this thread sends are queued at their links, and each
// link writes its queue with one call: several small messages in a row wake their receiver once.
// Call Flush before waiting for anything that may depend on the messages, and before long work.
//
//   GatheredSends gathered;
//   for (...) link->Send(...);
//   GatheredSends::Flush();   // also at the end
//   wait();
//
// Scopes nest; the outermost one counts. Each thread has its own.
class GatheredSends {
 public:
  GatheredSends();
  ~GatheredSends();
  GatheredSends(const GatheredSends&) = delete;
  GatheredSends& operator=(const GatheredSends&) = delete;

  // Writes what this thread has gathered. Does nothing outside of a scope.
  static void Flush();

  // For links: registers a queue that has messages to write. False outside of a scope: then the
  // caller writes them.
  static bool Add(std::shared_ptr<SendQueue> queue);

 private:
  const bool outermost_;
};

}  // namespace tutti::net
