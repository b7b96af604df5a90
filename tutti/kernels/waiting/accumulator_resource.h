#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/kernels/waiting/waiting.h"

namespace tutti {

// What one slot gave to a step: a dense tensor, or rows with their numbers (int64).
struct Contribution {
  Tensor indices = {};  // invalid for a dense one
  Tensor values = {};
  bool own = true;  // nobody else has the memory of `values`: it may be written
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
  Tensor sum;                               // unless rows are wanted
  std::vector<Contribution> contributions;  // parallel to slots, if rows are wanted

 private:
  absl::Status DeliverRows();
};

// Contributions to steps. The order of the sum is that of the slots: what is next in that order for
// a Take that waits is added at once, the rest is kept apart. Thread-safe.
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

  // How many steps that were taken it remembers, to know what comes twice.
  static constexpr int64_t kRememberedSteps = 1024;

  // The contribution's memory must not change any more. `once`: one that was made already is
  // ignored.
  absl::Status Apply(int64_t step, int64_t slot, bool once, Contribution contribution);
  void Take(const std::shared_ptr<AccumulatorTakeWaiter>& waiter);

 private:
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  struct Step {
    std::map<int64_t, Contribution> kept;  // by slot
    std::vector<int64_t> summed;           // slots whose contributions are in `sum`, ascending
    Tensor sum;
    bool own = true;  // sum may be written; else it is the first contribution, in another's memory
  };
  void Advance();
  // Does the waiter have all it wants? Adds what is next in order. Not OK: it never will.
  absl::StatusOr<bool> IsReady(AccumulatorTakeWaiter& waiter);
  absl::Status AddNext(Step& step, int64_t slot, KernelContext& context);
  absl::Status MakeOwn(Step& step, KernelContext& context);
  absl::Status AddDense(Step& step, const Contribution& contribution, KernelContext& context);
  bool HasContributed(int64_t step, int64_t slot) const;

  const Config config_;
  std::map<int64_t, Step> steps_;
  std::map<int64_t, std::vector<int64_t>> taken_;  // by step: the slots that had contributed
  int64_t last_taken_ = -1;
  std::list<std::shared_ptr<AccumulatorTakeWaiter>> waiting_;
};

}  // namespace tutti
