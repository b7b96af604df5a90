#include "tutti/train/strategies/strategy.h"

#include <algorithm>

namespace tutti {
namespace {

double NumberOf(const Tensor& scalar) {
  return scalar.dtype() == kFloat64 ? scalar.scalar<double>() : double(scalar.scalar<float>());
}

// The update is one run, and what it fetches is joint already.
class DirectDriver final : public StepDriver {
 public:
  DirectDriver(Session& session, const StepNodes& nodes, const StepRange& range)
      : session_(session),
        update_(nodes.update),
        fetches_{nodes.joint.loss, nodes.joint.samples, nodes.joint.stop},
        first_(range.first),
        step_(range.first),
        end_(range.end) {}

  int64_t NextBatch() override { return step_ < end_ ? step_ - first_ : -1; }

  StepResult Run(const StepCall& call) override {
    fetches_.resize(kJoint);
    fetches_.insert(fetches_.end(), call.fetches.begin(), call.fetches.end());
    fetched_.resize(fetches_.size());
    session_.RunInto(call.feeds, fetches_, std::span(&update_, 1), fetched_, call.options());
    std::copy(fetched_.begin() + kJoint, fetched_.end(), call.results.begin());
    return {.step = ++step_,
            .loss = NumberOf(fetched_[0]),
            .samples = NumberOf(fetched_[1]),
            .stop = fetched_[2].scalar<float>() > 0};
  }

 private:
  Session& session_;
  const Node* const update_;
  static constexpr int kJoint = 3;

  std::vector<Output> fetches_;  // the joint ones, then what the call wants
  std::vector<Tensor> fetched_;
  const int64_t first_;
  int64_t step_;
  const int64_t end_;
};

}  // namespace

std::unique_ptr<StepDriver> Strategy::MakeDriver(Session& session, const StepNodes& nodes,
                                                 const StepRange& range) const {
  return std::make_unique<DirectDriver>(session, nodes, range);
}

}  // namespace tutti
