// Gradients of look-up tables are rows: row numbers, and what to add to each of those rows. They
// travel as rows, by AllGather, because the sum over all workers would be as large as the table.
//
// A model may have many tables (a recommender one for each feature), and an operation for each
// costs more than its few bytes. So the rows of all tables of one type and row length go together:
//
//   tables 0..T-1    row r of table t gets the number r * T + t, so that one number tells both
//   Concat           numbers [n], rows [n, length]
//   Unique, ScatterNd     rows of the same number are summed: each is sent, and applied, once
//   AllGather        numbers and rows of all workers, by rank
//   DynamicPartition by number % T: each table has its rows again, in the same order
//
// The update of a table sums what several workers have for one row, in the order of ranks, so every
// worker computes the same bits.
#include "tutti/train/strategies/gather_rows.h"

#include <fmt/format.h>

#include <map>

#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

// The dimensions of a row of the variable; -1 where one is unknown.
int64_t RowLength(const GradientAndVariable& entry) {
  const Shape& shape = entry.variable.shape();
  if (!shape.has_rank()) return kUnknownDim;
  int64_t length = 1;
  for (int i = 1; i < shape.rank(); ++i) {
    if (shape[i] < 0) return kUnknownDim;
    length *= shape[i];
  }
  return length;
}

struct Rows {
  Output numbers;  // int64 [n]
  Output values;   // [n, length]
};

Rows Distinct(const Rows& rows, int64_t length) {
  const UniqueResult unique = Unique(rows.numbers);
  Graph& graph = rows.numbers.graph();
  const int64_t size[] = {length};
  const Output shape = Concat({ExpandDims(Size(unique.values), 0),
                               Constant(graph, Tensor::Of<int64_t>({1}, std::span(size)))},
                              0);
  return {unique.values, ScatterNd(ExpandDims(unique.indices, -1), rows.values, shape)};
}

void GatherTogether(const CollectiveCall& call, const std::vector<size_t>& members, int64_t length,
                    std::vector<GradientAndVariable>& list) {
  const auto tables = int64_t(members.size());
  std::vector<Output> numbers, values;
  for (int64_t t = 0; t < tables; ++t) {
    const GradientValue& gradient = list[members[size_t(t)]].gradient;
    const Output flat = Reshape(gradient.indices, Shape{-1});
    numbers.push_back(Add(Mul(flat.dtype() == kInt64 ? flat : Cast(flat, kInt64), tables), t));
    values.push_back(Reshape(gradient.rows, Shape{-1, length}));
  }
  const Rows own = Distinct({Concat(numbers, 0), Concat(values, 0)}, length);
  const DType dtype = own.values.dtype();
  const std::string key = fmt::format("rows/{}x{}", NameOf(dtype), length);
  const Output all_numbers = AllGather(own.numbers, call(key + "/numbers", kInt64));
  const Output all_values = AllGather(own.values, call(key, dtype));
  const Output table = Mod(all_numbers, tables);
  const std::vector<Output> row = DynamicPartition(FloorDiv(all_numbers, tables), table, tables);
  const std::vector<Output> value = DynamicPartition(all_values, table, tables);
  for (size_t t = 0; t < members.size(); ++t) {
    GradientAndVariable& entry = list[members[t]];
    const Shape& whole = entry.variable.shape();
    entry.gradient = {.indices = row[t], .rows = Reshape(value[t], whole.WithDim(0, kUnknownDim))};
  }
}

// A table whose row length only the run can tell, or is 0.
void GatherAlone(const CollectiveCall& call, GradientAndVariable& entry) {
  const std::string key = fmt::format("rows/{}", entry.variable.node->name());
  const GradientValue& gradient = entry.gradient;
  entry.gradient = {.indices = AllGather(Reshape(gradient.indices, Shape{-1}),
                                         call(key + "/numbers", gradient.indices.dtype())),
                    .rows = AllGather(gradient.rows, call(key, gradient.rows.dtype()))};
}

}  // namespace

void GatherRows(const CollectiveCall& call, std::vector<GradientAndVariable>& list) {
  std::map<std::pair<DType, int64_t>, std::vector<size_t>> groups;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].gradient.sparse()) continue;
    const int64_t length = RowLength(list[i]);
    if (length <= 0) {
      GatherAlone(call, list[i]);
    } else {
      groups[{list[i].gradient.rows.dtype(), length}].push_back(i);
    }
  }
  for (const auto& [group, members] : groups) {
    GatherTogether(call, members, group.second, list);
  }
}

}  // namespace tutti
