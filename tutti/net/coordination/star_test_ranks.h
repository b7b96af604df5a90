#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/coordination/star.h"
#include "tutti/net/socket.h"

// What the tests of the star share: ranks as threads of one process.
namespace tutti::net {

// A folder that goes with the test.
class TestFolder {
 public:
  TestFolder() {
    std::string name = testing::TempDir() + "/star_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

inline StarOptions TestOptions(int rank, int size, const std::string& file) {
  StarOptions options;
  options.rank = rank;
  options.size = size;
  options.file = file;
  options.job = "test";
  options.token = "secret";
  options.timeout_seconds = 20;
  return options;
}

using StarResult = absl::StatusOr<std::unique_ptr<Star>>;

// Connects with each of the options, all at a time.
inline std::vector<StarResult> ConnectAll(const std::vector<StarOptions>& options) {
  std::vector<StarResult> stars(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { stars[i] = Star::Connect(options[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return stars;
}

// All ranks of a job; empty if one of them failed.
inline std::vector<std::unique_ptr<Star>> ConnectRanks(const std::vector<StarOptions>& options) {
  std::vector<std::unique_ptr<Star>> stars;
  for (StarResult& star : ConnectAll(options)) {
    EXPECT_TRUE(star.ok()) << star.status();
    if (!star.ok()) return {};
    stars.push_back(*std::move(star));
  }
  return stars;
}

inline std::vector<StarOptions> TestRanks(int size, const std::string& file) {
  std::vector<StarOptions> options;
  for (int rank = 0; rank < size; ++rank) options.push_back(TestOptions(rank, size, file));
  return options;
}

// Calls `body` for every star on a thread of its own.
inline void OnAll(const std::vector<std::unique_ptr<Star>>& stars,
                  const std::function<void(Star&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& star : stars) {
    if (star != nullptr) threads.emplace_back([&] { body(*star); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Takes a star's failure.
class Verdict {
 public:
  explicit Verdict(Star* star) {
    star->OnFailure([state = state_](int rank, const absl::Status& status) {
      const std::lock_guard lock(state->mutex);
      ++state->calls;
      state->verdict.emplace(rank, status);
      state->changed.notify_all();
    });
  }
  // Waits for it; nothing within 20 s gives rank -2.
  std::pair<int, absl::Status> Wait() const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait_for(lock, std::chrono::seconds(20),
                             [this] { return state_->verdict.has_value(); });
    EXPECT_LE(state_->calls, 1);
    return state_->verdict.value_or(std::pair(-2, absl::UnknownError("no verdict")));
  }
  bool known() const {
    const std::lock_guard lock(state_->mutex);
    return state_->verdict.has_value();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<std::pair<int, absl::Status>> verdict;
    int calls = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// "host:port" that was free a moment ago.
inline std::string FreeAddress(const std::string& host = "127.0.0.1") {
  const auto addresses = Resolve({host, 0});
  if (!addresses.ok()) return "";
  const auto listener = Listen(addresses->front());
  if (!listener.ok()) return "";
  return ToString(*LocalAddress(listener->fd()));
}

inline std::string Text(const absl::Status& status) { return std::string(MessageOf(status)); }

}  // namespace tutti::net
