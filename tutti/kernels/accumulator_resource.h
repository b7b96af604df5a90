#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/kernels/waiting.h"

namespace tutti {

// What one slot gave to a step: a dense tensor, or rows with their numbers (int64).
struct Contribution {
  Tensor indices = {};  // invalid for a dense one
  Tensor values = {};
};

// An AccumulatorTake or AccumulatorTakeRows that waits for its slots.
struct AccumulatorTakeWaiter final : Waiter {
  AccumulatorTakeWaiter(KernelContext& context, int64_t asked_step, std::vector<int64_t> of_slots,
                        bool as_rows)
      : Waiter(context), step(asked_step), slots(std::move(of_slots)), rows(as_rows) {}
  absl::Status Deliver() override;

  int64_t step;
  std::vector<int64_t> slots;  // ascending, each once
  bool rows;
  std::vector<Contribution> contributions;  // parallel to slots

 private:
  absl::Status DeliverSum();
  absl::Status DeliverRows();
};

// Contributions to steps, kept apart until they are taken so that the order of the sum is that of
// the slots. Thread-safe.
class AccumulatorResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    DType dtype = kFloat32;
    Shape shape = {};
    std::string ToString() const;
    friend bool operator==(const Config&, const Config&) = default;
  };
  explicit AccumulatorResource(Config config) : config_(std::move(config)) {}
  std::string_view kind() const override { return "Accumulator"; }
  const Config& config() const { return config_; }

  // The contribution's memory must be its own.
  absl::Status Apply(int64_t step, int64_t slot, Contribution contribution);
  void Take(const std::shared_ptr<AccumulatorTakeWaiter>& waiter);

 private:
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  void Advance();

  const Config config_;
  std::map<int64_t, std::map<int64_t, Contribution>> steps_;  // by step, then slot
  int64_t last_taken_ = -1;
  std::list<std::shared_ptr<AccumulatorTakeWaiter>> waiting_;
};

}  // namespace tutti
