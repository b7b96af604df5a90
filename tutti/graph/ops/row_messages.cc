#include "tutti/graph/ops/row_messages.h"

#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status CheckWire(const InferContext& c) {
  const auto& wire = c.attr<std::string>("wire");
  if (wire == "as-is" || wire == "bfloat16" || wire == "float16") return absl::OkStatus();
  return c.Error("wire is \"{}\"; expected as-is, bfloat16 or float16", wire);
}

absl::Status CheckRows(const InferContext& c, int i) {
  TUTTI_RETURN_IF_ERROR(c.RequireFloating(i));
  return c.RequireRankAtLeast(i, 1);
}

// Inputs: all numbers, then as many rows.
absl::Status InferPackRows(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(CheckWire(c));
  const int count = c.num_inputs() / 2;
  if (c.num_inputs() % 2 != 0) {
    return c.Error("{} inputs given; expected as many numbers as rows", c.num_inputs());
  }
  for (int i = 0; i < count; ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireIndex(i));
    TUTTI_RETURN_IF_ERROR(c.RequireRank(i, 1));
    TUTTI_RETURN_IF_ERROR(CheckRows(c, count + i));
    const Shape& rows = c.shape(count + i);
    if (rows.has_rank() && c.shape(i).has_rank() && !Shape{rows[0]}.CompatibleWith(c.shape(i))) {
      return c.Error("{}, {}; expected a row for each number", c.DescribeInput(i),
                     c.DescribeInput(count + i));
    }
  }
  c.SetOutput(0, kInt64, Shape{kUnknownDim});
  return absl::OkStatus();
}

// Outputs: numbers and rows of each table.
absl::Status InferMergeRows(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(CheckWire(c));
  TUTTI_RETURN_IF_ERROR(c.RequireDType(0, kInt64));
  TUTTI_RETURN_IF_ERROR(c.RequireRank(0, 1));
  for (int i = 1; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(CheckRows(c, i));
    const Shape& rows = c.shape(i);
    c.SetOutput(2 * (i - 1), kInt64, Shape{kUnknownDim});
    c.SetOutput(2 * (i - 1) + 1, c.dtype(i), rows.has_rank() ? rows.WithDim(0, kUnknownDim) : rows);
  }
  return absl::OkStatus();
}

std::vector<Output> RowsOf(std::span<const TableRows> tables) {
  std::vector<Output> rows;
  for (const TableRows& table : tables) rows.push_back(table.rows);
  return rows;
}

}  // namespace

void RegisterRowMessageOps(OpRegistry& registry) {
  registry.Add({.name = "PackRows",
                .inputs = {"numbers_and_rows..."},
                .attrs = {{"wire", std::string("as-is")}},
                .infer = InferPackRows});
  registry.Add({.name = "MergeRows",
                .inputs = {"messages", "rows..."},
                .attrs = {{"wire", std::string("as-is")}},
                .infer = InferMergeRows});
}

Output PackRows(std::span<const TableRows> tables, const std::string& wire, std::string_view name) {
  std::vector<Output> numbers;
  for (const TableRows& table : tables) numbers.push_back(table.numbers);
  return OpBuilder("PackRows", name).In(numbers).In(RowsOf(tables)).Attr("wire", wire).Build();
}

std::vector<TableRows> MergeRows(Input messages, std::span<const TableRows> tables,
                                 const std::string& wire, std::string_view name) {
  const std::vector<Output> outputs =
      OpBuilder("MergeRows", name).In(messages).In(RowsOf(tables)).Attr("wire", wire).BuildAll();
  std::vector<TableRows> merged;
  for (size_t i = 0; i + 1 < outputs.size(); i += 2) merged.push_back({outputs[i], outputs[i + 1]});
  return merged;
}

}  // namespace tutti
