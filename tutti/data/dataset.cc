#include "tutti/data/dataset.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "tutti/base/checked.h"
#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/data/epoch_order.h"
#include "tutti/data/idx.h"
#include "tutti/data/prefetch.h"

namespace tutti {
namespace {

// Of a batch. So its products with the numbers of shards stay far from 2^63.
constexpr int64_t kMostSamples = std::numeric_limits<int32_t>::max();

double MemoryOfMachine() {
  return double(::sysconf(_SC_PHYS_PAGES)) * double(::sysconf(_SC_PAGE_SIZE));
}

}  // namespace

struct Dataset::Recipe {
  Columns columns;
  int64_t samples = 0;
  bool shuffle = false;
  uint64_t seed = 0;
  int64_t epochs = 1;  // -1: for ever
  int64_t batch = 1;
  int shard = 0;
  int shards = 1;
  int prefetch = 0;
  std::vector<std::function<Columns(Columns)>> maps;

  // Positions there are in all.
  int64_t end() const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (samples == 0) return 0;
    return epochs < 0 || epochs > kMost / samples ? kMost : epochs * samples;
  }
};

// Worker w of n has the samples [w * size / n, (w + 1) * size / n) of a batch of `size`.
class SliceReader final : public DatasetReader {
 public:
  SliceReader(std::shared_ptr<const Dataset::Recipe> recipe, int64_t begin)
      : recipe_(std::move(recipe)),
        begin_(std::min(begin, recipe_->end())),
        past_batch_(begin_ % recipe_->batch) {
    CheckMemory();
  }

  bool SeekTo(int64_t position) override {
    begin_ = std::min(position, recipe_->end());
    past_batch_ = begin_ % recipe_->batch;
    return true;
  }

  bool Next(Minibatch* batch) override {
    const Dataset::Recipe& recipe = *recipe_;
    const int64_t size = std::min(recipe.batch, recipe.end() - begin_);
    if (size <= 0) return false;
    const int64_t first = begin_ + size * recipe.shard / recipe.shards;
    const int64_t last = begin_ + size * (recipe.shard + 1) / recipe.shards;
    begin_ += size;
    batch->position = first - past_batch_;
    batch->count = last - first;
    batch->columns = Gather(first, last - first);
    for (const auto& map : recipe.maps) {
      batch->columns = map(std::move(batch->columns));
      CheckCount(*batch);
    }
    return true;
  }

 private:
  // A batch that cannot fit is refused before any of it is made.
  void CheckMemory() const {
    const int64_t size = std::min(recipe_->batch, recipe_->end());
    if (size == 0) return;
    double row_bytes = sizeof(int64_t);  // of rows_
    for (const auto& [name, column] : recipe_->columns) {
      row_bytes += double(column.bytes()) / double(recipe_->samples);
    }
    const int64_t own = DivideRoundUp(size, recipe_->shards);
    const double bytes = double(own) * row_bytes;
    const double memory = MemoryOfMachine();
    if (bytes <= memory) return;
    ThrowInvalidArgument(
        fmt::format("Dataset: {} samples of a batch of {} take {:.1f} GB, but this machine has "
                    "{:.1f} GB; take smaller batches",
                    own, size, bytes * 1e-9, memory * 1e-9));
  }

  int64_t RowAt(int64_t position) {
    const int64_t index = position % recipe_->samples;
    if (!recipe_->shuffle) return index;
    if (const int64_t epoch = position / recipe_->samples; epoch != epoch_) {
      order_ = EpochOrder(recipe_->samples, recipe_->seed, epoch);
      epoch_ = epoch;
    }
    return order_[size_t(index)];
  }

  Columns Gather(int64_t position, int64_t count) {
    rows_.clear();
    for (int64_t i = 0; i < count; ++i) rows_.push_back(RowAt(position + i));
    Columns gathered;
    for (const auto& [name, column] : recipe_->columns) {
      if (IsView(column)) {
        gathered.emplace(name, View(column, count));
        continue;
      }
      Tensor made(column.dtype(), column.shape().WithDim(0, count));
      const size_t bytes = column.bytes() / size_t(recipe_->samples);
      auto* target = static_cast<std::byte*>(made.raw());
      const auto* source = static_cast<const std::byte*>(column.raw());
      for (size_t i = 0; bytes > 0 && i < rows_.size(); ++i) {
        std::memcpy(target + i * bytes, source + size_t(rows_[i]) * bytes, bytes);
      }
      gathered.emplace(name, std::move(made));
    }
    return gathered;
  }

  // Rows that lie side by side in memory that kernels can read need no copy. A map function might
  // write to them, so it gets one.
  bool IsView(const Tensor& column) const {
    if (!recipe_->maps.empty() || rows_.empty() || column.bytes() == 0) return false;
    for (size_t i = 1; i < rows_.size(); ++i) {
      if (rows_[i] != rows_[i - 1] + 1) return false;
    }
    return OffsetOf(column) % kBufferAlignment == 0;
  }
  Tensor View(const Tensor& column, int64_t count) const {
    return Tensor(column.dtype(), column.shape().WithDim(0, count), column.buffer(),
                  OffsetOf(column));
  }
  // Of the first row, in the column's buffer.
  size_t OffsetOf(const Tensor& column) const {
    const auto* buffer = static_cast<const std::byte*>(column.buffer()->data());
    const size_t row_bytes = column.bytes() / size_t(recipe_->samples);
    return size_t(static_cast<const std::byte*>(column.raw()) - buffer) +
           size_t(rows_[0]) * row_bytes;
  }

  static void CheckCount(const Minibatch& batch) {
    for (const auto& [name, column] : batch.columns) {
      if (column.valid() && column.shape().rank() > 0 && column.shape()[0] == batch.count) continue;
      ThrowInvalidArgument(
          fmt::format("Dataset: a map function made column \"{}\" {} from {} samples; it must keep "
                      "their number",
                      name, column.valid() ? column.shape().ToString() : "invalid", batch.count));
    }
  }

  const std::shared_ptr<const Dataset::Recipe> recipe_;
  int64_t begin_;       // position of the next global batch
  int64_t past_batch_;  // how far it began behind a whole number of batches
  int64_t epoch_ = -1;
  std::vector<int64_t> order_;
  std::vector<int64_t> rows_;
};

Dataset Dataset::FromTensors(Columns columns) {
  if (columns.empty()) ThrowInvalidArgument("Dataset: no columns given");
  const auto& [first_name, first] = *columns.begin();
  for (const auto& [name, column] : columns) {
    if (!column.valid() || column.shape().rank() < 1) {
      ThrowInvalidArgument(fmt::format(
          "Dataset: column \"{}\" is {}; expected a tensor with a first dimension of samples", name,
          column.valid() ? column.shape().ToString() : "invalid"));
    }
    if (column.shape()[0] != first.shape()[0]) {
      ThrowInvalidArgument(fmt::format("Dataset: column \"{}\" has {} rows, \"{}\" has {}", name,
                                       column.shape()[0], first_name, first.shape()[0]));
    }
  }
  auto recipe = std::make_shared<Recipe>();
  recipe->samples = first.shape()[0];
  recipe->columns = std::move(columns);
  return Dataset(std::move(recipe));
}

Dataset Dataset::FromIdx(const std::map<std::string, std::string>& paths) {
  Columns columns;
  for (const auto& [name, path] : paths) columns.emplace(name, ReadIdx(path));
  return FromTensors(std::move(columns));
}

Dataset Dataset::With(const std::function<void(Recipe&)>& change) const {
  auto recipe = std::make_shared<Recipe>(*recipe_);
  change(*recipe);
  return Dataset(std::move(recipe));
}

Dataset Dataset::Shuffle(uint64_t seed) const {
  return With([&](Recipe& recipe) {
    recipe.shuffle = true;
    recipe.seed = seed;
  });
}

Dataset Dataset::Repeat(int64_t epochs) const {
  if (epochs < -1) {
    ThrowInvalidArgument(
        fmt::format("Dataset: {} epochs; expected 0 or more, or -1 for ever", epochs));
  }
  return With([&](Recipe& recipe) { recipe.epochs = epochs; });
}

Dataset Dataset::Batch(int64_t size) const {
  if (size < 1 || size > kMostSamples) {
    ThrowInvalidArgument(
        fmt::format("Dataset: batches of {} samples; expected 1 to {}", size, kMostSamples));
  }
  return With([&](Recipe& recipe) { recipe.batch = size; });
}

Dataset Dataset::Map(std::function<Columns(Columns)> function) const {
  return With([&](Recipe& recipe) { recipe.maps.push_back(std::move(function)); });
}

Dataset Dataset::Shard(int index, int count) const {
  if (index < 0 || index >= count) {
    ThrowInvalidArgument(
        fmt::format("Dataset: shard {} of {}; expected 0 to {}", index, count, count - 1));
  }
  return With([&](Recipe& recipe) {
    recipe.shard = index;
    recipe.shards = count;
  });
}

Dataset Dataset::Prefetch(int batches) const {
  if (batches < 0) {
    ThrowInvalidArgument(
        fmt::format("Dataset: {} batches to prefetch; expected 0 or more", batches));
  }
  return With([&](Recipe& recipe) { recipe.prefetch = batches; });
}

int64_t Dataset::samples() const { return recipe_->samples; }
int64_t Dataset::batch_size() const { return recipe_->batch; }
int64_t Dataset::epochs() const { return recipe_->epochs; }
std::optional<uint64_t> Dataset::shuffle_seed() const {
  return recipe_->shuffle ? std::optional(recipe_->seed) : std::nullopt;
}
const Columns& Dataset::columns() const { return recipe_->columns; }

std::unique_ptr<DatasetReader> Dataset::Read(int64_t step) const {
  if (step < 0) ThrowInvalidArgument(fmt::format("Dataset: step {} is negative", step));
  const auto position = CheckedMul(step, recipe_->batch);
  return ReadFrom(position.value_or(recipe_->end()));
}

std::unique_ptr<DatasetReader> Dataset::ReadFrom(int64_t position) const {
  if (position < 0) {
    ThrowInvalidArgument(fmt::format("Dataset: position {} is negative", position));
  }
  auto reader = std::make_unique<SliceReader>(recipe_, position);
  // Where there is one core, nothing can be copied beside what computes; only a map function may
  // wait for something.
  const bool useless = recipe_->maps.empty() && UsableCores() == 1;
  if (recipe_->prefetch == 0 || useless) return reader;
  return MakePrefetchReader(std::move(reader), recipe_->prefetch);
}

}  // namespace tutti
