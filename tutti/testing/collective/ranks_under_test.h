#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/collective/communicator.h"

namespace tutti::collective {

// All ranks of a job, each driven by a thread of its own. For tests.
class RanksUnderTest {
 public:
  explicit RanksUnderTest(std::vector<std::unique_ptr<Communicator>> ranks)
      : ranks_(std::move(ranks)) {}
  explicit RanksUnderTest(int size)
      : RanksUnderTest(std::move(Communicator::CreateInProcess(size)).value()) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  Communicator& operator[](int rank) { return *ranks_[rank]; }
  void Drop(int rank) { ranks_[rank].reset(); }

  // Calls `body` for every rank at the same time, and returns when all are done.
  void Run(const std::function<void(Communicator&)>& body) {
    std::vector<std::thread> threads;
    for (auto& rank : ranks_) threads.emplace_back([&] { body(*rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

// Ranks that are joined by the transport ("loopback", "shm", "tcp", "ucx") as they would be if each
// were a process of its own, with links that are not measured. No ranks if that failed.
inline RanksUnderTest RanksOver(const std::string& transport, int size) {
  if (transport == "loopback") return RanksUnderTest(size);
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-ranks-XXXXXX").string();
  EXPECT_NE(::mkdtemp(folder.data()), nullptr) << folder;
  std::vector<std::unique_ptr<Communicator>> ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      auto made = Communicator::Create({.bootstrap = {.rank = r,
                                                      .size = size,
                                                      .address = "",
                                                      .file = folder + "/meeting",
                                                      .endpoints = {}},
                                        .transport = transport,
                                        .tune = false});
      EXPECT_TRUE(made.ok()) << made.status();
      if (made.ok()) ranks[static_cast<size_t>(r)] = *std::move(made);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::filesystem::remove_all(folder);
  if (::testing::Test::HasFailure()) ranks.clear();
  return RanksUnderTest(std::move(ranks));
}

}  // namespace tutti::collective
