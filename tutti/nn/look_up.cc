#include "tutti/nn/look_up.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"

namespace tutti::nn {
namespace {

Output GatherThere(Output table, Output ids) {
  const DeviceScope device(table.graph(), table.node->device());
  return Gather(table, ids);
}

// Each part gives the rows that it has: ids are sorted out by the first rows of the parts, and the
// rows put back in the order of the ids. Ids outside the table make a last group, which must be
// empty.
Output GatherFromParts(const Node& parts, Output ids) {
  const int count = parts.num_inputs();
  Output part = ZerosLike(ids);
  std::vector<int64_t> first_rows = {0};
  for (int p = 1; p <= count; ++p) {
    first_rows.push_back(first_rows.back() + parts.input(p - 1).shape()[0]);
    const auto first = first_rows.back();
    part = Add(part, Cast(GreaterEqual(ids, Cast(Constant(ids.graph(), first), ids.dtype())),
                          ids.dtype()));
  }
  const Output zero = ZerosLike(ids);
  part = Select(Less(ids, zero),
                Add(zero, Cast(Constant(ids.graph(), int64_t{count}), ids.dtype())), part);
  const Output places = Range(int64_t{0}, Size(ids), int64_t{1});
  const std::vector<Output> ids_of = DynamicPartition(ids, part, count + 1);
  std::vector<Output> places_of = DynamicPartition(places, part, count + 1);
  places_of.pop_back();
  std::vector<Output> rows;
  for (int p = 0; p < count; ++p) {
    const Output first = Cast(Constant(ids.graph(), first_rows[size_t(p)]), ids.dtype());
    rows.push_back(GatherThere(parts.input(p), Sub(ids_of[size_t(p)], first)));
  }
  const std::string outside =
      fmt::format("row outside variable \"{}\", which is {} and has rows 0 to {}", parts.name(),
                  parts.type(0).shape.ToString(), first_rows.back() - 1);
  const Output bad = ids_of.back();
  const ControlScope checked(ids.graph(), {Assert(Equal(Size(bad), int64_t{0}), {{bad}}, outside)});
  return DynamicStitch(places_of, rows);
}

}  // namespace

Output LookUp(Input table, Input ids) {
  const Node& node = *table.output().node;
  const bool in_parts = node.op() == "Concat" && IsVariable(node);
  const bool elsewhere = !node.device().empty() && node.device() != node.graph().device_scope();
  if (ids.is_literal() || (!in_parts && !elsewhere)) return Gather(table, ids);
  NameScope scope(table.output().graph(), "look_up");
  const Output flat = Reshape(ids, Shape{-1});
  const UniqueResult unique = Unique(flat);
  const Output rows =
      in_parts ? GatherFromParts(node, unique.values) : GatherThere(table.output(), unique.values);
  const Output repeated = Gather(rows, unique.indices);
  const Shape& row = table.output().shape();
  const std::vector<int64_t> widths(row.dims().begin() + 1, row.dims().end());
  const Output dims = Concat(
      {ShapeOf(ids),
       Constant(ids.output().graph(),
                Tensor::Of<int64_t>({int64_t(widths.size())}, std::span<const int64_t>(widths)))},
      0);
  return Reshape(repeated, Input(dims));
}

}  // namespace tutti::nn
