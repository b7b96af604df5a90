#include "tutti/data/prefetch.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tutti {
namespace {

class PrefetchReader final : public DatasetReader {
 public:
  PrefetchReader(std::unique_ptr<DatasetReader> inner, size_t batches)
      : inner_(std::move(inner)), most_(batches) {}

  // Begins to read ahead. Throws std::system_error when there is no thread to be had.
  void Start() {
    thread_ = std::thread([this] { ReadAhead(); });
  }
  // The reader within, for use without this one. REQUIRES: not started.
  std::unique_ptr<DatasetReader> TakeInner() { return std::move(inner_); }

  ~PrefetchReader() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  bool Next(Minibatch* batch) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
    if (ready_.empty()) {
      if (failure_ != nullptr) std::rethrow_exception(failure_);
      return false;
    }
    *batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return true;
  }

 private:
  void ReadAhead() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closed_ || ready_.size() < most_; });
        if (closed_) return;
      }
      Minibatch batch;
      bool more = false;
      std::exception_ptr failure;
      try {
        more = inner_->Next(&batch);
      } catch (...) {
        failure = std::current_exception();
      }
      {
        std::lock_guard lock(mutex_);
        if (more) ready_.push_back(std::move(batch));
        failure_ = failure;
        ended_ = !more;
      }
      changed_.notify_all();
      if (!more) return;
    }
  }

  std::unique_ptr<DatasetReader> inner_;
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Minibatch> ready_;
  std::exception_ptr failure_;
  bool ended_ = false;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DatasetReader> MakePrefetchReader(std::unique_ptr<DatasetReader> inner,
                                                  int batches) {
  auto reader = std::make_unique<PrefetchReader>(std::move(inner), size_t(batches));
  try {
    reader->Start();
  } catch (const std::system_error&) {
    // Reading ahead saves time and nothing else.
    return reader->TakeInner();
  }
  return reader;
}

}  // namespace tutti
