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

// Packs the rows of all tables into one message, int64 [words]. Rows of a table with the same
// number are summed, so that each number occurs once. `wire`: as-is, bfloat16 or float16, the type
// in which float32 values are written.
Output PackRows(std::span<const TableRows> tables, const std::string& wire = "as-is",
                std::string_view name = "");

// Merges concatenated messages: for each table its rows with ascending numbers, each once; rows
// with the same number are summed in the order of the messages. `tables`: what this worker packed;
// the result has these types, and its numbers are int64.
std::vector<TableRows> MergeRows(Input messages, std::span<const TableRows> tables,
                                 const std::string& wire = "as-is", std::string_view name = "");

}  // namespace tutti
