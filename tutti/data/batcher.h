#pragma once

#include <cstdint>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti {

// The order in which epoch `epoch` visits `samples` samples: a permutation that depends on nothing
// but the arguments, on every machine.
std::vector<int64_t> EpochOrder(int64_t samples, uint64_t seed, int64_t epoch);

struct BatcherOptions {
  uint64_t seed = 0;
  bool shuffle = true;  // false: every epoch in the order of the rows
};

// Samples in memory as an endless stream, one shuffled epoch after the other. A position counts
// samples since the start of training, and what lies at a position depends on nothing but the seed:
// so a checkpoint needs one integer to go on, and N workers that take contiguous slices of
// [t * batch, (t + 1) * batch) see together what one worker would see. Not thread-safe.
//
//   Batcher batcher({images, labels}, {.seed = 1});
//   std::vector<Tensor> batch = batcher.Next(64);   // {images [64, ...], labels [64]}
class Batcher {
 public:
  // Throws Error unless there is a column, all have the same number of rows, and that is not 0.
  explicit Batcher(std::vector<Tensor> columns, const BatcherOptions& options = {});

  int64_t samples() const { return samples_; }
  int64_t position() const { return position_; }
  // Throws Error when `position` is negative.
  void Seek(int64_t position);

  // The rows at positions [position(), position() + count) of each column, and moves on. A batch
  // may reach over the end of an epoch. Throws Error unless count > 0.
  std::vector<Tensor> Next(int64_t count);

 private:
  // The row at a position; keeps the order of the epoch that was asked for last.
  int64_t RowAt(int64_t position);

  std::vector<Tensor> columns_;
  BatcherOptions options_;
  int64_t samples_ = 0;
  int64_t position_ = 0;
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
};

}  // namespace tutti
