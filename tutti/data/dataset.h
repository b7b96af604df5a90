#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Samples side by side: a tensor for each column, whose first dimension counts the samples.
using Columns = std::map<std::string, Tensor>;

// One worker's slice of one global batch.
struct Minibatch {
  Columns columns;
  int64_t count = 0;  // samples in it; 0 for a worker whose slice is empty
  // Of its first sample. Where reading began in the middle of a batch (ReadFrom), it is counted
  // from the batch before, so that position % batch_size is always the place in its own batch.
  int64_t position = 0;
};

// Reads a Dataset from a position on. Not thread-safe.
class DatasetReader {
 public:
  virtual ~DatasetReader() = default;
  // This worker's slice of the next global batch. False at the end, when no worker has any more.
  // Its columns may be views of the dataset's: do not write to them.
  // Throws Error when a map function does, or changes the number of samples.
  virtual bool Next(Minibatch* batch) = 0;
  // Continues with the global batch that begins at `position`. Returns false if this reader cannot;
  // make another reader then.
  virtual bool SeekTo(int64_t /*position*/) { return false; }
};

// A recipe for a stream of batches. Every function gives another Dataset and leaves this one as it
// is; the order of the calls does not matter, but for that of several Maps. Cheap to copy.
//
// What the stream holds depends on nothing but the recipe: sample k of an epoch is fixed by (seed,
// epoch), the global batch t is the samples at positions [t * size, (t + 1) * size), and worker w
// of n has a contiguous slice of it. So N workers see together what one would see, and a position
// is one number, whatever the number of workers.
//
//   Dataset train = Dataset::FromTensors({{"image", images}, {"label", labels}})
//                       .Shuffle(seed).Repeat().Batch(64).Map(Augment).Prefetch(2);
class Dataset {
 public:
  // Throws Error unless there is a column, and all have the same number of rows.
  static Dataset FromTensors(Columns columns);
  // Columns from IDX files (see idx.h), by name of column.
  static Dataset FromIdx(const std::map<std::string, std::string>& paths);

  // Shuffles the samples, differently in every epoch.
  Dataset Shuffle(uint64_t seed) const;
  // Repeats the samples for `epochs` epochs; -1: without end. Without this call there is one epoch.
  Dataset Repeat(int64_t epochs = -1) const;
  // Sets the number of samples in a global batch, which all workers share. Throws Error unless size
  // > 0. A batch may span the end of an epoch; the last batch may be smaller.
  Dataset Batch(int64_t size) const;
  // Changes a batch's columns, on the thread that reads. It must keep the number of samples and
  // should depend on nothing but them.
  Dataset Map(std::function<Columns(Columns)> function) const;
  // The slice of worker `index` of `count`. Throws Error unless 0 <= index < count.
  Dataset Shard(int index, int count) const;
  // Reads this many batches ahead, on a thread of the reader where that can save time.
  Dataset Prefetch(int batches) const;

  int64_t samples() const;     // of one epoch, over all workers
  int64_t batch_size() const;  // over all workers
  int64_t epochs() const;      // -1: for ever
  // The seed of Shuffle; nothing if the samples come in their order.
  std::optional<uint64_t> shuffle_seed() const;
  // The shape and type of a column, the number of samples unknown.
  const Columns& columns() const;

  // A reader that begins at the global batch `step`.
  std::unique_ptr<DatasetReader> Read(int64_t step = 0) const;
  // A reader whose first global batch begins at the sample `position`, which may lie in the middle
  // of a batch of Read: earlier samples may have been taken in batches of another size.
  std::unique_ptr<DatasetReader> ReadFrom(int64_t position) const;

 private:
  struct Recipe;
  explicit Dataset(std::shared_ptr<const Recipe> recipe) : recipe_(std::move(recipe)) {}
  Dataset With(const std::function<void(Recipe&)>& change) const;

  friend class SliceReader;
  std::shared_ptr<const Recipe> recipe_;
};

}  // namespace tutti
