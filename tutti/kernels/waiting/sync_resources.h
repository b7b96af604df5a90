#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tutti/device/step_cleanup.h"
#include "tutti/kernels/waiting/waiting.h"

// What the nodes of graph/ops/sync.h work on. All are thread-safe. (The accumulator has a file of
// its own.)
namespace tutti {

// A waiter whose result is one int64 scalar.
struct NumberWaiter : Waiter {
  using Waiter::Waiter;
  absl::Status Deliver() override {
    *context->output(0).data<int64_t>() = result;
    return absl::OkStatus();
  }
  int64_t result = 0;
};

class MutexResource;

// A MutexAcquire. Its token is given back should its step fail before the MutexRelease.
struct MutexWaiter final : NumberWaiter {
  MutexWaiter(KernelContext& context, std::shared_ptr<MutexResource> acquired)
      : NumberWaiter(context), mutex(std::move(acquired)) {}
  absl::Status Deliver() override;
  std::shared_ptr<MutexResource> mutex;
};

class MutexResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    std::string ToString() const { return "no attributes"; }
    friend bool operator==(const Config&, const Config&) = default;
  };
  explicit MutexResource(Config config) : config_(std::move(config)) {}
  std::string_view kind() const override { return "Mutex"; }
  const Config& config() const { return config_; }

  void Acquire(const std::shared_ptr<MutexWaiter>& waiter);  // its result is the token
  absl::Status Release(int64_t token);
  void ReleaseIfHeld(int64_t token);

 private:
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  void Advance();

  const Config config_;
  int64_t last_token_ = 0;
  int64_t holder_ = 0;  // its token; 0: nobody
  std::list<std::shared_ptr<MutexWaiter>> waiting_;
};

class BarrierResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    int64_t participants = 1;
    std::string ToString() const;
    friend bool operator==(const Config&, const Config&) = default;
  };
  explicit BarrierResource(Config config) : config_(std::move(config)) {}
  std::string_view kind() const override { return "Barrier"; }
  const Config& config() const { return config_; }

  void Arrive(const std::shared_ptr<NumberWaiter>& waiter);  // its result is the round

 private:
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;

  const Config config_;
  int64_t round_ = 0;
  std::list<std::shared_ptr<NumberWaiter>> waiting_;
};

// A GateAdmitted that waits for admission to a step to be complete.
struct GateWaiter final : Waiter {
  GateWaiter(KernelContext& context, int64_t asked_step) : Waiter(context), step(asked_step) {}
  absl::Status Deliver() override;
  int64_t step;
  std::vector<int64_t> admitted;
};

class GateResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    int64_t admit = 1;
    int64_t workers = 1;
    std::string ToString() const;
    friend bool operator==(const Config&, const Config&) = default;
  };
  // How many steps behind the newest one are remembered.
  static constexpr int64_t kRememberedSteps = 1024;

  explicit GateResource(Config config)
      : config_(std::move(config)),
        expected_from_(size_t(config_.workers), 0),
        refused_(size_t(config_.workers), 0) {}
  std::string_view kind() const override { return "Gate"; }
  const Config& config() const { return config_; }

  absl::StatusOr<bool> Enter(int64_t step, int64_t worker);
  void Admitted(const std::shared_ptr<GateWaiter>& waiter);
  absl::StatusOr<bool> Contains(int64_t step, int64_t worker);
  absl::Status Leave(int64_t worker);
  absl::StatusOr<int64_t> Join(int64_t worker);  // the newest step
  std::vector<int64_t> refused();                // by worker

 private:
  struct Step {
    std::set<int64_t> admitted;
    std::set<int64_t> refused;
  };
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  void Advance();
  bool Complete(int64_t number, const Step& step) const;
  absl::Status CheckWorker(int64_t worker) const;
  absl::Status ForgottenStep(int64_t step) const;

  const Config config_;
  std::map<int64_t, Step> steps_;
  int64_t newest_ = -1;
  static constexpr int64_t kLeft = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> expected_from_;  // by worker: the first step that waits for it; or kLeft
  std::vector<int64_t> refused_;        // by worker: how many entries
  std::list<std::shared_ptr<GateWaiter>> waiting_;
};

// A ClockWait.
struct ClockWaiter final : NumberWaiter {
  ClockWaiter(KernelContext& context, int64_t who, int64_t most_lead)
      : NumberWaiter(context), worker(who), staleness(most_lead) {}
  int64_t worker;
  int64_t staleness;
};

class ClockResource final : public WaitingResource {
 public:
  struct Config {
    std::string name = {};
    int64_t workers = 1;
    std::string ToString() const;
    friend bool operator==(const Config&, const Config&) = default;
  };
  explicit ClockResource(Config config)
      : config_(std::move(config)), times_(size_t(config_.workers), 0) {}
  std::string_view kind() const override { return "Clock"; }
  const Config& config() const { return config_; }

  absl::StatusOr<int64_t> Advance(int64_t worker);
  void Wait(const std::shared_ptr<ClockWaiter>& waiter);
  absl::Status Leave(int64_t worker);
  absl::StatusOr<int64_t> Join(int64_t worker);  // its time

 private:
  static constexpr int64_t kLeft = -1;
  void Remove(const std::shared_ptr<Waiter>& waiter) override;
  std::string DescribeState() const override;
  void FinishWaiters();
  int64_t Slowest() const;  // of those that have not left; -1 when all have
  absl::Status CheckRange(int64_t worker) const;
  absl::Status CheckWorker(int64_t worker) const;

  const Config config_;
  std::vector<int64_t> times_;
  int64_t last_slowest_ = 0;  // where the slowest stood when there was one
  std::list<std::shared_ptr<ClockWaiter>> waiting_;
};

class DispenserResource final : public Resource {
 public:
  struct Config {
    std::string name = {};
    int64_t workers = 1;
    std::string ToString() const { return fmt::format("{} workers", workers); }
    friend bool operator==(const Config&, const Config&) = default;
  };
  static constexpr int64_t kNone = -1;
  using Held = std::array<int64_t, 2>;  // the one taken first, first

  explicit DispenserResource(Config config)
      : config_(std::move(config)), held_(size_t(config_.workers), Held{kNone, kNone}) {}
  std::string_view kind() const override { return "Dispenser"; }
  const Config& config() const { return config_; }

  absl::StatusOr<int64_t> Take(int64_t worker);
  absl::StatusOr<Held> Return(int64_t worker);
  void Reset();

 private:
  absl::Status CheckWorker(int64_t worker) const;

  const Config config_;
  std::mutex mutex_;
  int64_t next_ = 0;
  std::set<int64_t> returned_;
  std::vector<Held> held_;  // by worker: the two that it took last
};

class LedgerResource final : public Resource, public std::enable_shared_from_this<LedgerResource> {
 public:
  struct Config {
    std::string name = {};
    int64_t workers = 1;
    std::string ToString() const { return fmt::format("{} workers", workers); }
    friend bool operator==(const Config&, const Config&) = default;
  };
  explicit LedgerResource(Config config)
      : config_(std::move(config)), entries_(size_t(config_.workers)) {}
  std::string_view kind() const override { return "Ledger"; }
  const Config& config() const { return config_; }

  // `cleanup` takes the entry back should its run fail before it is confirmed; null: nothing does.
  absl::StatusOr<bool> Enter(int64_t worker, int64_t step, StepCleanup* cleanup);
  absl::Status Confirm(int64_t worker, int64_t step);

 private:
  struct Entry {
    int64_t newest = -1;     // step entered
    int64_t confirmed = -1;  // step whose entry stays
  };
  absl::Status Check(int64_t worker, int64_t step) const;

  const Config config_;
  std::mutex mutex_;
  std::vector<Entry> entries_;  // by worker
};

}  // namespace tutti
