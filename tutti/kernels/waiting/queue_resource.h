#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tutti/graph/ops/queue.h"
#include "tutti/kernels/waiting/waiting.h"

namespace tutti {

// One element of a queue: a tensor for each component, in memory of its own.
using QueueElement = std::vector<Tensor>;

// An Enqueue or EnqueueMany that waits for room.
struct QueuePut final : Waiter {
  using Waiter::Waiter;
  std::vector<QueueElement> elements;
  size_t next = 0;  // the first that is not in the queue yet
};

// A Dequeue or DequeueMany that waits for elements. It takes them as they come, so that it may ask
// for more than the queue's capacity, and gives them back when it is cancelled.
struct QueueTake final : Waiter {
  QueueTake(KernelContext& context, int64_t elements, bool as_batch)
      : Waiter(context), count(elements), many(as_batch) {}
  absl::Status Deliver() override;

  int64_t count;
  bool many;
  std::vector<QueueElement> taken;
};

// A bounded queue, first in first out or shuffled. Waiting puts and takes are served each in the
// order in which they came. Thread-safe.
class QueueResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    std::string kind = {};  // "FIFOQueue" or "RandomShuffleQueue"
    QueueComponents components = {};
    int64_t capacity = 1;
    int64_t min_after_dequeue = 0;
    int64_t seed = 0;
    std::string ToString() const;
    friend bool operator==(const Config&, const Config&) = default;
  };

  explicit QueueResource(Config config)
      : config_(std::move(config)), random_(uint64_t(config_.seed)) {}

  std::string_view kind() const override { return config_.kind; }
  const Config& config() const { return config_; }

  // Each finishes the waiter now or later.
  void Put(const std::shared_ptr<QueuePut>& put);
  void Take(const std::shared_ptr<QueueTake>& take);

  int64_t size();
  void Close(bool cancel_pending);

 private:
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  void Advance();
  bool AdvancePuts();
  bool AdvanceTakes();
  bool FailTakesAtTheEnd();
  void GiveBack(QueueTake& take);
  QueueElement Pop();

  const Config config_;
  std::mt19937_64 random_;
  std::deque<QueueElement> elements_;
  std::list<std::shared_ptr<QueuePut>> puts_;
  std::list<std::shared_ptr<QueueTake>> takes_;
  bool closed_ = false;
};

}  // namespace tutti
