#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/graph/input.h"

namespace tutti {

// Where a batch enters the graph: a placeholder for each of its columns, of the types that the data
// has, one for the number of samples, and one for the place of the first in the global batch.
struct BatchInputs {
  std::map<std::string, Output> columns;
  Output samples;  // float32 scalar
  Output first;    // int64 scalar

  BatchInputs() = default;
  // Of batches like `example`; the names of the placeholders begin with `scope`.
  BatchInputs(Graph& graph, const Columns& example, std::string_view scope);

  // Adds what feeds them with `batch`.
  void Feed(const Minibatch& batch, int64_t global_batch, std::vector<tutti::Feed>& feeds) const;
};

// Reads batches of a dataset by their numbers, which grow: number 0 begins at the sample `begin`.
// Not thread-safe.
class BatchByNumber {
 public:
  BatchByNumber(Dataset dataset, int64_t begin) : dataset_(std::move(dataset)), begin_(begin) {}
  // False at the end of the data.
  bool Read(int64_t number, Minibatch* batch);

 private:
  const Dataset dataset_;
  const int64_t begin_;
  std::unique_ptr<DatasetReader> reader_;
  int64_t next_ = 0;  // of reader_
};

// One sample of a dataset, for the types of its batches. Throws Error when there is none.
Columns ExampleOf(const Dataset& dataset);

// "image float32 [?, 28, 28, 1], label int32 [?]"
std::string DescribeTypes(const Columns& columns);

}  // namespace tutti
