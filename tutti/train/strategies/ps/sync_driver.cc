#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <set>
#include <stop_token>
#include <system_error>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/train/strategies/ps/queue_peers.h"
#include "tutti/train/strategies/ps/sync_counts.h"
#include "tutti/train/strategies/ps/sync_step.h"

namespace tutti {
namespace {

// How long the update of a step may take that a lost worker was admitted to: it may have pushed all
// its gradients before it died.
constexpr auto kUpdatePatience = std::chrono::milliseconds(300);

// A worker that has left so many tokens is gone or stuck, and gets no more until it takes them.
constexpr int64_t kMostTokens = 1024;

}  // namespace

// Makes the updates of a range, one after the other, on a thread of its own: they wait for workers,
// and this process's own worker must not wait with them.
class SyncDriver::Updater {
 public:
  Updater(Session& session, const SyncStep& sync, const StepRange& range, QueuePeers& peers)
      : session_(session), sync_(sync), range_(range), peers_(peers), next_(range.first) {
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error& error) {
      ThrowIfError(CannotStartThread("the thread that makes the updates", error.code().message()));
    }
  }
  ~Updater() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  // Waits until everybody has been told of the updates before `step`.
  void Await(int64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return next_ >= step; });
  }
  // The same, not for ever: false if they are not made.
  bool AwaitSoon(int64_t step) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kUpdatePatience, [&] { return next_ >= step; });
  }
  // The step whose update is under way.
  int64_t next() {
    const std::lock_guard lock(mutex_);
    return next_;
  }
  // Does a worker get tokens?
  void SetReleased(int worker, bool released) {
    const std::lock_guard lock(mutex_);
    if (released) {
      lost_.erase(worker);
    } else {
      lost_.insert(worker);
    }
  }
  int64_t lost() {
    const std::lock_guard lock(mutex_);
    return int64_t(lost_.size());
  }
  // Warns of the workers that have not entered the step under way for long.
  void WarnOfLate() {
    const int64_t now = NowNanos();
    int64_t step, since;
    std::set<int> lost;
    {
      const std::lock_guard lock(mutex_);
      if (next_ >= range_.end || now - warned_ < peers_.late_nanos()) return;
      warned_ = now;
      step = next_;
      since = since_;
      lost = lost_;
    }
    std::vector<int> late;
    for (int w = 0; w < sync_.options().workers; ++w) {
      const std::array<Feed, 2> feeds = {Feed{sync_.worker, Tensor::Scalar<int64_t>(w)},
                                         {sync_.step, Tensor::Scalar<int64_t>(step)}};
      const auto in = session_.Run(feeds, std::span(&sync_.contains, 1), {},
                                   {.timeout = kUpdatePatience, .stop = stop_.get_token()});
      if (!in[0].scalar<bool>() && !lost.contains(w)) late.push_back(w);
    }
    if (!late.empty()) peers_.WarnOfLate(fmt::format("step {}", step + 1), since, late);
  }

 private:
  void SetNext(int64_t step) {
    {
      const std::lock_guard lock(mutex_);
      next_ = step;
      since_ = warned_ = NowNanos();
    }
    changed_.notify_all();
  }

  void Loop() {
    MakeUpdates();
    SetNext(std::numeric_limits<int64_t>::max());
  }

  void MakeUpdates() {
    const std::stop_callback aborted(peers_.aborted(), [this] { stop_.request_stop(); });
    try {
      std::vector<Output> fetches = sync_.waiting_tokens;
      fetches.push_back(sync_.update_values);
      std::vector<int64_t> waiting(sync_.tokens.size(), 0);
      for (int64_t step = range_.first; step < range_.end; ++step) {
        std::vector<const Node*> targets = {sync_.update};
        {
          const std::lock_guard lock(mutex_);
          for (size_t w = 0; w < waiting.size(); ++w) {
            if (waiting[w] < kMostTokens && !lost_.contains(int(w))) {
              targets.push_back(sync_.tokens[w]);
            }
          }
        }
        const std::vector<Feed> feeds = {{sync_.update_step, Tensor::Scalar<int64_t>(step)}};
        const auto fetched = session_.Run(feeds, fetches, targets, {.stop = stop_.get_token()});
        for (size_t w = 0; w < waiting.size(); ++w) waiting[w] = fetched[w].scalar<int64_t>();
        SetNext(step + 1);
        if (fetched.back().data<double>()[SyncCounts::kStop] > 0) return;
      }
    } catch (const Error& error) {
      if (stop_.stop_requested()) return;
      // Nobody would be released any more.
      peers_.Abort(error.code(), fmt::format("the update failed: {}", error.what()));
    }
  }

  Session& session_;
  const SyncStep& sync_;
  const StepRange range_;
  QueuePeers& peers_;
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_;                                  // the step whose update is under way
  int64_t since_ = NowNanos(), warned_ = since_;  // when it began, or was warned of
  std::set<int> lost_;                            // workers
  std::thread thread_;
};

SyncDriver::SyncDriver(Session& session, std::shared_ptr<const SyncStep> sync,
                       const StepRange& range, std::shared_ptr<QueuePeers> peers,
                       const GradientCheck& check, bool skip_bad)
    : session_(session),
      sync_(std::move(sync)),
      peers_(std::move(peers)),
      check_(check),
      skip_bad_(skip_bad),
      first_(range.first),
      step_(range.first),
      end_(range.end) {
  if (peers_->rank() == 0 && step_ < end_) {
    updater_ = std::make_unique<Updater>(session_, *sync_, range, *peers_);
    peers_->SetLossHandler({{.lost = [this](int rank, const std::string& why) { Lost(rank, why); },
                             .back = [this](int rank) { updater_->SetReleased(rank, true); },
                             .look = [this] { WarnOfLate(); }}});
  } else if (peers_->late()) {
    const Feed worker = {sync_->worker, Tensor::Scalar<int64_t>(peers_->rank())};
    step_ = std::max(step_, session_.Run({worker}, sync_->join).scalar<int64_t>());
    Log(LogLevel::kWarning, "worker {} was started again, and goes on from step {}", peers_->rank(),
        step_);
  }
}

SyncDriver::~SyncDriver() {
  if (peers_->rank() == 0) peers_->SetLossHandler({});
}

// On a thread of the peers, with backups. The gate no longer waits for the worker. If it had been
// admitted to the step under way, the accumulators wait for what it may not have pushed, and one
// update must not mix worker sets: then the job ends.
void SyncDriver::Lost(int rank, const std::string& why) {
  updater_->SetReleased(rank, false);
  const int64_t backups = sync_->options().workers - sync_->options().admit;
  if (updater_->lost() > backups) {
    peers_->Abort(Code::kUnavailable,
                  fmt::format("{}; {} of {} workers are lost, and an update is made from {}", why,
                              updater_->lost(), sync_->options().workers, sync_->options().admit));
    return;
  }
  const int64_t step = updater_->next();
  const Feed worker = {sync_->worker, Tensor::Scalar<int64_t>(rank)};
  try {
    session_.RunTargets({worker}, {sync_->leave});
    const Feed at = {sync_->step, Tensor::Scalar<int64_t>(step)};
    const bool admitted = session_.Run({worker, at}, sync_->contains).scalar<bool>();
    if (!admitted || updater_->AwaitSoon(step + 1)) return;
    peers_->Abort(Code::kUnavailable,
                  fmt::format("{}; it had been admitted to step {}, which cannot be made without "
                              "its gradients",
                              why, step));
  } catch (const Error& error) {
    peers_->Abort(error.code(),
                  fmt::format("worker {} could not be left out: {}", rank, error.what()));
  }
}

void SyncDriver::WarnOfLate() {
  try {
    updater_->WarnOfLate();
  } catch (const Error&) {
    // A server that is gone is told of by those who need it.
  }
}

int64_t SyncDriver::NextBatch() { return !over_ && step_ < end_ ? step_ - first_ : -1; }

std::vector<Tensor> SyncDriver::RunPart(std::span<const Feed> feeds,
                                        std::span<const Output> fetches, const Node* target,
                                        const RunOptions& options) {
  RunOptions stoppable = options;
  stoppable.stop = peers_->aborted();
  try {
    return session_.Run(feeds, fetches, std::span(&target, 1), stoppable);
  } catch (const Error& error) {
    peers_->RethrowOfStep(error);
  }
}

// The gradients are computed and held, then pushed or dropped: two runs. Gives what Run fetches.
std::vector<Tensor> SyncDriver::RunWithBackups(const StepCall& call) {
  std::vector<Output> first = {sync_->admitted, check_.finite};
  first.insert(first.end(), call.fetches.begin(), call.fetches.end());
  const std::vector<Tensor> entered = RunPart(feeds_, first, sync_->push, call.options());
  const bool admitted = entered[0].scalar<bool>();
  (admitted ? pushed_ : dropped_) += 1;
  last_dropped_ = !admitted;
  const auto own_feeds = std::span<const Feed>(feeds_).last(2);
  const auto& release = sync_->release[size_t(peers_->rank())];
  const std::array<Output, 2> second = {release.step, release.values};
  std::vector<Tensor> released =
      RunPart(own_feeds, second, admitted ? sync_->send_held : sync_->drop_held, {});
  released.insert(released.end(), entered.begin() + 1, entered.end());
  return released;
}

StepResult SyncDriver::Run(const StepCall& call) {
  feeds_.assign(call.feeds.begin(), call.feeds.end());
  feeds_.emplace_back(sync_->worker, Tensor::Scalar<int64_t>(peers_->rank()));
  feeds_.emplace_back(sync_->step, Tensor::Scalar<int64_t>(step_));
  std::vector<Tensor> fetched;
  if (sync_->has_backups()) {
    fetched = RunWithBackups(call);
  } else {
    const auto& release = sync_->release[size_t(peers_->rank())];
    std::vector<Output> fetches = {release.step, release.values, check_.finite};
    fetches.insert(fetches.end(), call.fetches.begin(), call.fetches.end());
    fetched = RunPart(feeds_, fetches, sync_->push, call.options());
    ++pushed_;
  }
  std::copy(fetched.begin() + 3, fetched.end(), call.results.begin());
  step_ = fetched[0].scalar<int64_t>();
  const double* values = fetched[1].data<double>();
  StepResult result = {.step = step_,
                       .loss = values[SyncCounts::kLoss],
                       .samples = values[SyncCounts::kSamples],
                       .stop = values[SyncCounts::kStop] > 0,
                       .bad = FirstBad(check_, fetched[2]),
                       .dropped = last_dropped_};
  over_ = result.stop;
  if (values[SyncCounts::kBad] > 0) {
    ++skipped_;
    if (!skip_bad_) result.loss = std::numeric_limits<double>::quiet_NaN();
  }
  return result;
}

void SyncDriver::Leave() {
  // The others may not have had the tokens of the last update yet. Updates that nobody will push to
  // any more are not waited for.
  if (updater_ != nullptr) updater_->Await(step_);
  if (peers_->rank() == 0) peers_->SetLossHandler({});
  updater_ = nullptr;
}

std::vector<std::pair<std::string, std::string>> SyncDriver::Report() const {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"gradients pushed", fmt::format("{}", pushed_)}};
  if (sync_->has_backups()) facts.emplace_back("dropped", fmt::format("{}", dropped_));
  if (skipped_ > 0) facts.emplace_back("updates skipped", fmt::format("{}", skipped_));
  return facts;
}

}  // namespace tutti
