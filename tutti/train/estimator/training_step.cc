#include "tutti/train/estimator/training_step.h"

#include "tutti/train/estimator/accumulation.h"

namespace tutti {
namespace {

double Number(const Tensor& scalar) {
  return scalar.dtype() == kFloat64 ? scalar.scalar<double>() : double(scalar.scalar<float>());
}

// The gradient of an entry as one tensor: rows where it has them.
Output ValueOf(const GradientValue& gradient) {
  return gradient.sparse() ? gradient.rows : gradient.dense;
}

}  // namespace

TrainingStep::TrainingStep(const TrainingGraph& training, const RunConfig& config, int64_t step)
    : training_(&training), shows_rate_(config.Shows("learning-rate")) {
  if (shows_rate_) fetches_.push_back(training.learning_rate);
  if (training.gradient_norm) fetches_.push_back(training.gradient_norm);
  if (config.Shows("metrics")) metrics_ = MetricStates(training.spec.metrics);
  fetches_.insert(fetches_.end(), metrics_.outputs().begin(), metrics_.outputs().end());
  // Whether or not this worker writes: the plan must be the same on all.
  if (config.histograms) {
    gradients_every_ = EverySteps(config.summary_every);
    gradients_every_.Begin(step);
    with_gradients_ = fetches_;
    for (const GradientAndVariable& entry : training.gradients) {
      if (entry.gradient.empty()) continue;
      with_gradients_.push_back(ValueOf(entry.gradient));
    }
  }
  fetched_.resize(std::max(fetches_.size(), with_gradients_.size()));
}

void TrainingStep::FeedPart(const Minibatch& part, int64_t global_batch, bool stop) {
  feeds_.clear();
  own_samples_ = part.count;
  training_->Feed(part, global_batch, feeds_);
  feeds_.emplace_back(training_->stop, Tensor::Scalar(stop ? 1.0f : 0.0f));
}

void TrainingStep::Run(StepDriver& driver, Session& session, const Minibatch& batch,
                       int64_t global_batch, int64_t step, bool stop, RunTrace* trace) {
  if (training_->accumulate == nullptr) {
    FeedPart(batch, global_batch, stop);
  } else {
    const std::vector<Minibatch> parts = SplitBatch(batch, training_->spec.accumulate);
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      FeedPart(parts[i], global_batch, stop);
      const Node* const targets[] = {training_->accumulate};
      session.RunInto(feeds_, {}, targets, {});
    }
    FeedPart(parts.back(), global_batch, stop);
  }
  const bool gradients = gradients_every_.Reached(step + 1);
  const std::vector<Output>& fetches = gradients ? with_gradients_ : fetches_;
  fetched_count_ = fetches.size();
  result_ = driver.Run({.feeds = feeds_,
                        .fetches = fetches,
                        .results = std::span(fetched_).first(fetched_count_),
                        .trace = trace});
  ReadValues();
}

void TrainingStep::ReadValues() {
  size_t next = 0;
  if (shows_rate_) values_["learning_rate"] = Number(fetched_[next++]);
  if (training_->gradient_norm) values_["gradient_norm"] = Number(fetched_[next++]);
  if (metrics_.outputs().empty() || own_samples_ == 0) return;
  metrics_.Clear();
  metrics_.Add(std::span(fetched_).subspan(next, metrics_.outputs().size()), own_samples_);
  for (const auto& [name, value] : metrics_.Finish()) values_["train_" + name] = value;
}

std::span<const Tensor> TrainingStep::gradients() const {
  return std::span(fetched_).first(fetched_count_).subspan(fetches_.size());
}

}  // namespace tutti
