#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tutti/collective/engine/handle.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// Decides which thread makes progress (DESIGN D12). A thread that waits for an operation drives: it
// makes progress for all operations, and sleeps in the transport when nothing moves. There is one
// driver at a time; other waiting threads sleep until their operation is done or the driver leaves.
// If the links need service (sockets), a service thread sleeps in the transport while no caller
// drives.
//
// Thread-safe; all but Wait, WaitForWork and Stop under `mutex`.
class Driver {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // What there is to drive. Called with `mutex` held.
  class Work {
   public:
    virtual bool Progress() = 0;              // true if something moved
    virtual void Idle() = 0;                  // now and then, when nothing moves
    virtual bool has_work() const = 0;        // without any message
    virtual bool has_operations() const = 0;  // that were called and are not done
    // Releases the lock, and tells outside what is due.
    virtual void Unlock(Lock& lock) = 0;

   protected:
    ~Work() = default;
  };

  Driver(std::mutex* mutex, net::Transport* transport, Work* work);
  ~Driver() { Stop(); }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Starts the thread that serves, where the links need one. Once.
  absl::Status StartService();
  // Ends it. No Wait may be running.
  void Stop();

  // Makes progress until `handle` is done.
  void Wait(const Handle::Impl& handle);
  // Sleeps until there may be something to do or the time is over.
  void WaitForWork(int64_t timeout_nanos);

  // An operation is done.
  void TellWaiting() {
    if (waiting_ > 0) changed_.notify_all();
  }
  bool asleep() const { return asleep_; }  // the driver, in the transport

  // The longest sleep: how soon a verdict that does not come, or a late rank, is noticed.
  static constexpr int64_t kSleepNanos = 50'000'000;

 private:
  void Drive(Lock& lock, const Handle::Impl& handle);
  void Sleep(Lock& lock, int64_t nanos);
  void Serve();

  std::mutex& mutex_;
  net::Transport* const transport_;
  Work& work_;
  const int looks_;  // of a driver for messages, before it lets go of the lock and sleeps
  std::condition_variable changed_;  // an operation is done, or the driver has left
  bool driven_ = false;
  uint64_t drives_ = 0;  // how often somebody began to drive
  bool asleep_ = false;
  int waiting_ = 0;  // for the condition
  bool stopping_ = false;
  std::condition_variable parked_;  // the service thread, while callers drive
  std::thread service_;
};

}  // namespace tutti::collective
