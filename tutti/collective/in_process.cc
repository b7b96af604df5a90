#include "tutti/collective/in_process.h"

#include <mutex>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/engine/engine_communicator.h"
#include "tutti/net/loopback/loopback_transport.h"

namespace tutti::collective {
namespace {

// The control plane of ranks in one process: a list of their engines.
class InProcessRanks {
 public:
  explicit InProcessRanks(int size) : engines_(size, nullptr), progress_(size, 0) {}

  void Join(int rank, Engine* engine) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    engines_[rank] = engine;
  }
  void Leave(int rank) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    engines_[rank] = nullptr;
    const absl::Status status = Unavailable("rank {} left the job", rank);
    for (Engine* engine : engines_) {
      if (engine != nullptr) engine->Left(rank, status);
    }
  }
  void FailAll(const absl::Status& status) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (first_cause_.ok()) first_cause_ = status;
    for (Engine* engine : engines_) {
      if (engine != nullptr) engine->Fail(first_cause_);
    }
  }
  void SetProgress(int rank, uint64_t counter) {
    const std::lock_guard lock(progress_mutex_);
    progress_[rank] = counter;
  }
  std::vector<uint64_t> Progress() const {
    const std::lock_guard lock(progress_mutex_);
    return progress_;
  }

 private:
  // Taken before an engine's lock, never after. An engine that is told of a rank that left may
  // report that from within.
  std::recursive_mutex mutex_;
  std::vector<Engine*> engines_;
  absl::Status first_cause_;
  mutable std::mutex progress_mutex_;
  std::vector<uint64_t> progress_;
};

class InProcessControl final : public Control {
 public:
  InProcessControl(std::shared_ptr<InProcessRanks> ranks, int rank)
      : ranks_(std::move(ranks)), rank_(rank) {}
  ~InProcessControl() override { ranks_->Leave(rank_); }
  void ReportLost(int, const absl::Status& status) override { ranks_->FailAll(status); }
  void ReportFailure(const absl::Status& status) override { ranks_->FailAll(status); }
  void SetProgress(uint64_t counter) override { ranks_->SetProgress(rank_, counter); }
  std::vector<uint64_t> Progress() const override { return ranks_->Progress(); }

 private:
  const std::shared_ptr<InProcessRanks> ranks_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> JoinInProcess(
    std::vector<std::unique_ptr<net::Transport>> transports, std::vector<int> hosts,
    double late_seconds) {
  const int size = static_cast<int>(transports.size());
  auto ranks = std::make_shared<InProcessRanks>(size);
  hosts.resize(transports.size(), 0);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < size; ++r) {
    auto control = std::make_unique<InProcessControl>(ranks, r);
    auto engine = std::make_unique<Engine>(std::move(transports[r]), control.get(), late_seconds);
    ranks->Join(r, engine.get());
    auto communicator = std::make_unique<EngineCommunicator>(
        std::move(engine), hosts, [](std::span<const int>, std::span<const int> member_hosts) {
          return std::make_unique<DefaultSelector>(ShapeOf(member_hosts));
        });
    communicator->SetControl(std::move(control));
    communicators.push_back(std::move(communicator));
  }
  return communicators;
}

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> Communicator::CreateInProcess(
    int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return InvalidArgument("{} ranks in a process, expected 1 to {}", ranks, kMaxRanks);
  }
  return JoinInProcess(net::LoopbackTransport::Make(ranks));
}

}  // namespace tutti::collective
