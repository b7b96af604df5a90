#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

// Communication of this worker since the start.
struct CommunicationStats {
  int64_t bytes = 0;          // of this worker's data
  int64_t active_nanos = 0;   // time with at least one operation running
  int64_t exposed_nanos = 0;  // the part of active_nanos in which the worker had nothing to compute
  // By rank: the part of exposed_nanos spent waiting for that rank, the last to start an operation.
  std::vector<int64_t> waited_nanos = {};
};

// Communication between the workers of a training outside of its steps: facts at the start, texts,
// sums, the failure of a worker. A strategy provides it (Strategy::peers); Estimator, evaluation,
// reports and traces use nothing else to reach other workers.
//
// All workers call Gather and Sum in the same order and with the same `what`; a call returns when
// all have made it. They throw Error when a worker has failed or is lost, unless the strategy goes
// on without workers that are lost: then those have no part in the result. Not thread-safe.
class Peers {
 public:
  virtual ~Peers() = default;
  virtual int workers() const = 0;
  virtual int rank() const = 0;  // of this process among the workers

  // The text of every worker, by rank; empty for one that is lost. `what` is for error messages:
  // "agreement".
  virtual std::vector<std::string> Gather(std::string_view what, std::string_view own) = 0;
  // Replaces each value by its sum over all workers, in an order that is the same on all.
  virtual void Sum(std::string_view what, std::span<double> values) = 0;

  // The ranks of the workers that took part in the last exchange, ascending; the same on all.
  virtual std::vector<int> Present() const {
    std::vector<int> all;
    for (int r = 0; r < workers(); ++r) all.push_back(r);
    return all;
  }

  // Ends every exchange of every worker with `message`, because this worker cannot continue.
  virtual void Abort(Code code, std::string_view message) = 0;
  // Why no exchange can succeed any more; empty if it can.
  virtual std::string Failure() const = 0;

  virtual CommunicationStats stats() const = 0;
};

// One worker: every exchange is with itself.
class AlonePeers final : public Peers {
 public:
  int workers() const override { return 1; }
  int rank() const override { return 0; }
  std::vector<std::string> Gather(std::string_view /*what*/, std::string_view own) override {
    return {std::string(own)};
  }
  void Sum(std::string_view /*what*/, std::span<double> /*values*/) override {}
  void Abort(Code /*code*/, std::string_view /*message*/) override {}
  std::string Failure() const override { return ""; }
  CommunicationStats stats() const override { return {}; }
};

}  // namespace tutti
