#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
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

}  // namespace tutti::collective
