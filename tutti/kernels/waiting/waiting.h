#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tutti/device/kernel.h"
#include "tutti/device/resource_store.h"

// What queues, mutexes, barriers and their like are made of: a node that cannot finish yet becomes
// a Waiter in a list of its resource, and no thread waits for it. Whoever changes the resource
// (another node, of any step) finishes the waiters that can go on. Cancelling a step takes its
// waiters out.
namespace tutti {

// One node that waits. The resource's lock guards all of it.
struct Waiter {
  explicit Waiter(KernelContext& node_context) : context(&node_context) {}
  virtual ~Waiter() = default;

  // Writes the node's outputs. Called after the waiter was finished with OK, without the lock, just
  // before the node is done.
  virtual absl::Status Deliver() { return absl::OkStatus(); }

  KernelContext* context;  // valid until the node is done
  bool finished = false;
  absl::Status status;
  Cancellation::Handle cancellation = Cancellation::kNone;
};

// A resource that nodes wait for. Each waiter is finished exactly once.
class WaitingResource : public Resource, public std::enable_shared_from_this<WaitingResource> {
 public:
  // What it is and how it stands, for whoever waited too long: `Mutex "m", which token 3 holds`.
  std::string Describe();

 protected:
  // While it lives the resource is locked. When it goes, the nodes of all waiters that were
  // finished under it are told so, after the lock is given up.
  class Access {
   public:
    explicit Access(WaitingResource& resource) : resource_(resource), lock_(resource.mutex_) {}
    ~Access();
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    WaitingResource& resource_;
    std::unique_lock<std::mutex> lock_;
  };

  // To be called with the lock held, after the waiter was put into a list of the resource: unless
  // it was finished at once, it will be taken out by Remove when its step is cancelled.
  void Watch(const std::shared_ptr<Waiter>& waiter);

  // The waiter's wait is over. REQUIRES: the lock is held; the waiter is in no list any more.
  void Finish(const std::shared_ptr<Waiter>& waiter, absl::Status status = absl::OkStatus());

  // Takes a cancelled waiter out of its list and undoes what it had begun. Called with the lock
  // held.
  virtual void Remove(const std::shared_ptr<Waiter>& waiter) = 0;

  // Describe() behind the kind: `"m", which token 3 holds`. Called with the lock held.
  virtual std::string DescribeState() const = 0;

 private:
  void Cancel(const std::shared_ptr<Waiter>& waiter);

  std::mutex mutex_;
  std::vector<std::shared_ptr<Waiter>> finished_;
};

// Ends an asynchronous node at once.
void FinishNode(KernelContext& context, absl::Status status);

}  // namespace tutti
