#pragma once

#include "tutti/graph/graph.h"

namespace tutti::nn {

// Says where the batch that a model is built on stands in the global batch of a training step, so
// that dropout treats a sample alike whichever worker has it. While it lives, the layers that this
// thread builds use it unless their options name a position. The Estimator opens one around the
// model function in training. Scopes nest; the innermost counts.
class SampleScope {
 public:
  // Both are int64 scalars: the index of the batch's first sample in the global batch, and the
  // number of samples in the batch.
  SampleScope(Output first, Output samples);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

  static const SampleScope* Current();  // of this thread; null outside any
  Output first() const { return first_; }
  Output samples() const { return samples_; }

 private:
  Output first_;
  Output samples_;
  const SampleScope* previous_;
};

}  // namespace tutti::nn
