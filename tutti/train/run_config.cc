#include "tutti/train/run_config.h"

#include "tutti/graph/ops/elementwise.h"

namespace tutti {

LearningRate RunConfig::Adjusted(const LearningRate& rate) const {
  LearningRate adjusted = rate;
  if (scale_learning_rate && workers() > 1) {
    adjusted = LearningRate([rate, factor = double(workers())](Output step) {
      return Mul(rate.BuildFrom(step), factor);
    });
  }
  return warmup_steps > 0 ? WithWarmup(warmup_steps, adjusted) : adjusted;
}

}  // namespace tutti
