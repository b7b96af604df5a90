#pragma once

#include <memory>
#include <vector>

namespace tutti::net {

// Something with messages to write: a link.
class SendQueue {
 public:
  virtual ~SendQueue() = default;
  // Writes what is queued if that takes no time, and has it written otherwise. Thread-safe.
  virtual void WriteQueued() = 0;
};

// While one lives, what this thread sends gathers in the links' queues, and a link writes all of it
// with one call: a thread that sends several small messages in a row wakes their receiver once.
// Whoever waits for something that may depend on the messages, or begins long work, calls Flush
// before.
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

  // For links: the queue has something to write. False outside of a scope: then it is written by
  // the caller.
  static bool Add(std::shared_ptr<SendQueue> queue);

 private:
  const bool outermost_;
};

}  // namespace tutti::net
