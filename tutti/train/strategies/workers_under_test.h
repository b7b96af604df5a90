#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/train/run_config.h"
#include "tutti/train/strategies/strategies.h"

// Several workers in this process for tests: each with a graph and a session of its own, on a
// thread of its own, joined by in-process communicators.
namespace tutti {

// Runs body(rank, communicator) on a thread for each rank. The message of each rank's Error is
// given back; empty where there was none.
inline std::vector<std::string> OnRanks(
    int ranks, const std::function<void(int, std::shared_ptr<collective::Communicator>)>& body) {
  auto communicators = ValueOrThrow(collective::Communicator::CreateInProcess(ranks));
  std::vector<std::shared_ptr<collective::Communicator>> shared;
  for (auto& communicator : communicators) shared.push_back(std::move(communicator));
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r, shared[size_t(r)]);
      } catch (const Error& error) {
        errors[size_t(r)] = error.what();
        shared[size_t(r)]->Abort(Aborted("rank {} failed: {}", r, error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// 100 steps of `batch` samples a worker; alone without a communicator. Buckets are so small that
// there are several.
inline RunConfig ConfigOf(std::shared_ptr<collective::Communicator> communicator, int64_t batch,
                          const std::string& wire = "as-is") {
  RunConfig config;
  config.program = "test";
  config.max_steps = 100;
  config.batch_size = batch;
  config.seed = 7;
  if (communicator == nullptr) {
    config.strategy_object = MakeLocalStrategy();
  } else {
    config.strategy = "allreduce";
    config.strategy_object = MakeAllReduceStrategy(
        communicator, {.wire = wire, .buckets = BucketOptions{.first_bytes = 64, .bytes = 256}});
  }
  return config;
}

}  // namespace tutti
