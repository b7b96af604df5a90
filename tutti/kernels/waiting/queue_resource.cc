// After every change Advance() lets the first waiting put and the first waiting take go as far as
// they can, until neither moves. Once the queue is closed and no put is left, takes that ask for
// more than there is fail, one by one from the front: what the failed one had taken goes back, and
// the next may find it enough.
#include "tutti/kernels/waiting/queue_resource.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/device/device.h"

namespace tutti {

absl::Status QueueTake::Deliver() {
  KernelContext& c = *context;
  if (!many) {
    for (size_t i = 0; i < taken[0].size(); ++i) c.SetOutput(int(i), std::move(taken[0][i]));
    return absl::OkStatus();
  }
  for (int i = 0; i < c.num_outputs(); ++i) {
    // Without elements only the declaration tells the shape of one.
    const Shape& declared = c.node->type(i).shape;
    Shape element = taken.empty() ? Shape{} : taken[0][i].shape();
    if (taken.empty()) {
      if (!declared.has_rank() || !declared.WithDim(0, 0).IsFullyKnown()) {
        return InvalidArgument(
            "count is 0 and component {} has elements of unknown shape {}, so the shape of the "
            "result is unknown",
            i, declared.ToString());
      }
      element = declared.WithoutDim(0);
    }
    for (size_t row = 1; row < taken.size(); ++row) {
      if (taken[row][i].shape() == element) continue;
      return InvalidArgument(
          "component {} of the elements taken differs in shape: {} and {}; DequeueMany needs equal "
          "ones",
          i, element.ToString(), taken[row][i].shape().ToString());
    }
    std::vector<int64_t> dims = {count};
    dims.insert(dims.end(), element.dims().begin(), element.dims().end());
    std::string why;
    const std::optional<Shape> packed = Shape::Make(dims, &why);
    if (!packed) return InvalidArgument("component {}: {}", i, why);
    TUTTI_RETURN_IF_ERROR(c.AllocateOutput(i, *packed));
    auto* to = static_cast<std::byte*>(c.output(i).raw());
    for (const QueueElement& row : taken) {
      if (row[i].bytes() > 0) std::memcpy(to, row[i].raw(), row[i].bytes());
      to += row[i].bytes();
    }
  }
  taken.clear();
  return absl::OkStatus();
}

void QueueResource::Put(const std::shared_ptr<QueuePut>& put) {
  const Access access(*this);
  if (closed_) return Finish(put, Cancelled("queue \"{}\" is closed", config_.name));
  puts_.push_back(put);
  Advance();
  Watch(put);
}

void QueueResource::Take(const std::shared_ptr<QueueTake>& take) {
  const Access access(*this);
  takes_.push_back(take);
  Advance();
  Watch(take);
}

int64_t QueueResource::size() {
  const Access access(*this);
  return int64_t(elements_.size());
}

void QueueResource::Close(bool cancel_pending) {
  const Access access(*this);
  closed_ = true;
  if (cancel_pending) {
    for (const auto& put : puts_) {
      Finish(put, Cancelled("queue \"{}\" was closed, and pending enqueues were cancelled",
                            config_.name));
    }
    puts_.clear();
  }
  Advance();
}

void QueueResource::Remove(const std::shared_ptr<Waiter>& waiter) {
  puts_.remove_if([&](const auto& put) { return put == waiter; });
  const auto take = std::find_if(takes_.begin(), takes_.end(),
                                 [&](const auto& candidate) { return candidate == waiter; });
  if (take != takes_.end()) {
    GiveBack(**take);
    takes_.erase(take);
  }
  Advance();
}

void QueueResource::Advance() {
  bool moved = true;
  while (moved) {
    moved = AdvancePuts();
    moved |= AdvanceTakes();
    if (!moved && closed_ && puts_.empty()) moved = FailTakesAtTheEnd();
  }
}

bool QueueResource::AdvancePuts() {
  bool moved = false;
  while (!puts_.empty()) {
    QueuePut& put = *puts_.front();
    while (put.next < put.elements.size() && int64_t(elements_.size()) < config_.capacity) {
      elements_.push_back(std::move(put.elements[put.next++]));
      moved = true;
    }
    if (put.next < put.elements.size()) break;
    const auto done = puts_.front();
    puts_.pop_front();
    Finish(done);
    moved = true;
  }
  return moved;
}

bool QueueResource::AdvanceTakes() {
  bool moved = false;
  const size_t least = closed_ && puts_.empty() ? 0 : size_t(config_.min_after_dequeue);
  while (!takes_.empty()) {
    QueueTake& take = *takes_.front();
    while (int64_t(take.taken.size()) < take.count && elements_.size() > least) {
      take.taken.push_back(Pop());
      moved = true;
    }
    if (int64_t(take.taken.size()) < take.count) break;
    const auto done = takes_.front();
    takes_.pop_front();
    Finish(done);
    moved = true;
  }
  return moved;
}

bool QueueResource::FailTakesAtTheEnd() {
  if (takes_.empty()) return false;
  const auto take = takes_.front();
  takes_.pop_front();
  GiveBack(*take);
  Finish(take, take->count == 1 && elements_.empty()
                   ? OutOfRange("queue \"{}\" is closed and empty", config_.name)
                   : OutOfRange("queue \"{}\" is closed and has {} elements; {} were asked for",
                                config_.name, elements_.size(), take->count));
  return true;
}

void QueueResource::GiveBack(QueueTake& take) {
  for (auto element = take.taken.rbegin(); element != take.taken.rend(); ++element) {
    elements_.push_front(std::move(*element));
  }
  take.taken.clear();
}

QueueElement QueueResource::Pop() {
  if (config_.kind == "RandomShuffleQueue") {
    std::swap(elements_.front(), elements_[size_t(random_() % elements_.size())]);
  }
  QueueElement element = std::move(elements_.front());
  elements_.pop_front();
  return element;
}

std::string QueueResource::Config::ToString() const {
  std::string text = "elements of (";
  for (size_t i = 0; i < components.size(); ++i) {
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", NameOf(components[i].dtype),
                        components[i].shape.ToString());
  }
  text += fmt::format("), capacity {}", capacity);
  if (kind != "RandomShuffleQueue") return text;
  return text + fmt::format(", min_after_dequeue {}, seed {}", min_after_dequeue, seed);
}

std::string QueueResource::DescribeState() const {
  return fmt::format("\"{}\", which has {} elements of at most {}", config_.name, elements_.size(),
                     config_.capacity);
}

}  // namespace tutti
