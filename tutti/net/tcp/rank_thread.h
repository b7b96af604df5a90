#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/tcp/tcp_transport.h"

// For tests of the TCP transport: ranks of one process, each driven by a thread of its own as an
// engine would do it (lock, Progress, unlock, Wait).
namespace tutti::net::tcp {

// Tells the test thread that something has happened in one of the ranks.
class Signal {
 public:
  void Notify() {
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  // Waits until the predicate holds; it is called with the lock held that `Locked` takes too.
  template <typename Predicate>
  bool WaitUntil(Predicate predicate, std::chrono::seconds limit = std::chrono::seconds(20)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, predicate);
  }
  template <typename Function>
  auto Locked(Function function) {
    const std::lock_guard lock(mutex_);
    return function();
  }

  static Signal& Get() {
    static Signal signal;
    return signal;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

// A request that remembers how it ended, and what was taken.
class Recorder final : public Request {
 public:
  void Done(const absl::Status& status) override {
    Signal::Get().Locked([&] {
      EXPECT_FALSE(done_) << "Done was called twice";
      done_ = true;
      status_ = status;
    });
    Signal::Get().Notify();
  }
  void Take(size_t offset, ConstBytes piece) override {
    EXPECT_EQ(offset, taken_.size()) << "pieces must come in order";
    EXPECT_EQ(offset % 64, 0u);
    taken_.insert(taken_.end(), piece.begin(), piece.end());
  }

  // How it ended; fails the test if it does not within the limit.
  absl::Status Wait() {
    if (!Signal::Get().WaitUntil([&] { return done_; })) {
      ADD_FAILURE() << "the request did not end";
      return DeadlineExceeded("the request did not end");
    }
    return Signal::Get().Locked([&] { return status_; });
  }
  bool done() {
    return Signal::Get().Locked([&] { return done_; });
  }
  const std::vector<std::byte>& taken() const { return taken_; }

 private:
  bool done_ = false;
  absl::Status status_;
  std::vector<std::byte> taken_;
};

class RankThread {
 public:
  explicit RankThread(std::unique_ptr<TcpTransport> transport) : transport_(std::move(transport)) {}
  ~RankThread() { Stop(); }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  // Ends the thread and the transport: the rank leaves.
  void Stop() {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        stop_ = true;
      }
      transport_->Wake();
      thread_.join();
    }
    transport_.reset();
  }

  // Calls the transport under the lock.
  template <typename Function>
  auto With(Function function) {
    const std::lock_guard lock(mutex_);
    return function(*transport_);
  }
  void Send(int peer, Tag tag, ConstBytes data, Request* request) {
    With([&](Transport& transport) { transport.Send(peer, tag, data, request); });
  }
  void Receive(int peer, Tag tag, std::byte* destination, size_t bytes, Request* request) {
    With([&](Transport& transport) { transport.Receive(peer, tag, destination, bytes, request); });
  }
  const std::string& endpoint() const { return transport_->endpoint(); }
  TcpTransport& transport() { return *transport_; }

  // The first links that broke and the first short messages, once there are so many.
  std::vector<Transport::BrokenLink> WaitForBroken(size_t count) {
    EXPECT_TRUE(Signal::Get().WaitUntil([&] { return broken_.size() >= count; }));
    return Signal::Get().Locked([&] { return broken_; });
  }
  std::vector<Transport::ShortMessage> WaitForShorts(size_t count) {
    EXPECT_TRUE(Signal::Get().WaitUntil([&] { return shorts_.size() >= count; }));
    return Signal::Get().Locked([&] { return shorts_; });
  }
  size_t broken_count() {
    return Signal::Get().Locked([&] { return broken_.size(); });
  }

 private:
  void Run() {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return;
        transport_->Progress();
        Transport::BrokenLink broken;
        Transport::ShortMessage message;
        bool news = false;
        while (transport_->NextBroken(&broken)) {
          Signal::Get().Locked([&] { broken_.push_back(broken); });
          news = true;
        }
        while (transport_->NextShort(&message)) {
          Signal::Get().Locked([&] { shorts_.push_back(message); });
          news = true;
        }
        if (news) Signal::Get().Notify();
      }
      transport_->Wait(50'000'000);
    }
  }

  std::unique_ptr<TcpTransport> transport_;
  std::mutex mutex_;
  bool stop_ = false;
  std::thread thread_;
  std::vector<Transport::BrokenLink> broken_;
  std::vector<Transport::ShortMessage> shorts_;
};

// Ranks that know each other and run.
inline std::vector<std::unique_ptr<RankThread>> StartRanks(int size, TcpOptions options = {}) {
  std::vector<std::unique_ptr<RankThread>> ranks;
  std::vector<std::string> endpoints;
  options.size = size;
  for (options.rank = 0; options.rank < size; ++options.rank) {
    ranks.push_back(std::make_unique<RankThread>(ValueOrThrow(TcpTransport::Listen(options))));
    endpoints.push_back(ranks.back()->endpoint());
  }
  for (const auto& rank : ranks) {
    ThrowIfError(rank->transport().Connect(endpoints));
    rank->Start();
  }
  return ranks;
}

inline std::vector<std::byte> RandomBytes(size_t count, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count + 8);
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  bytes.resize(count);
  return bytes;
}

}  // namespace tutti::net::tcp
