#include "tutti/train/strategies/strategy.h"

#include <array>

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
        step_(range.first),
        end_(range.end) {}

  int64_t NextBatch() override { return step_ < end_ ? step_ : -1; }

  StepResult Run(std::span<const Feed> feeds, const RunOptions& options) override {
    session_.RunInto(feeds, fetches_, std::span(&update_, 1), fetched_, options);
    return {.step = ++step_,
            .loss = NumberOf(fetched_[0]),
            .samples = NumberOf(fetched_[1]),
            .stop = fetched_[2].scalar<float>() > 0};
  }

 private:
  Session& session_;
  const Node* const update_;
  const std::array<Output, 3> fetches_;
  std::array<Tensor, 3> fetched_;
  int64_t step_;
  const int64_t end_;
};

}  // namespace

void Strategy::Initialize(Graph& /*graph*/, Session& session) const { session.Initialize(); }

std::unique_ptr<StepDriver> Strategy::MakeDriver(Session& session, const StepNodes& nodes,
                                                 const StepRange& range) const {
  return std::make_unique<DirectDriver>(session, nodes, range);
}

}  // namespace tutti
