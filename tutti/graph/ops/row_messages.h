#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Rows of many tables as one message, for workers that exchange them. No gradients.
namespace tutti {

// Rows of one table: what belongs to row numbers[i] is rows[i].
struct TableRows {
  Output numbers;  // int32 or int64, [count]
  Output rows;     // floating, [count, ...]
};

// All of them as one message, int64 [words]. Rows of one number in a table are summed, so each is
// there once. `wire`: as-is, bfloat16 or float16, which is how float32 is written.
Output PackRows(std::span<const TableRows> tables, const std::string& wire = "as-is",
                std::string_view name = "");

// The rows in messages that stand one behind the other, table by table, each number once and in
// ascending order: rows of one number are summed in the order of the messages. `tables`: what this
// worker packed; the result has these types, and numbers are int64.
std::vector<TableRows> MergeRows(Input messages, std::span<const TableRows> tables,
                                 const std::string& wire = "as-is", std::string_view name = "");

}  // namespace tutti
