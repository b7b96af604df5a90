#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tutti/device/layout.h"
#include "tutti/graph/graph.h"

namespace tutti {

// A value of a program: an output of the node with that id.
struct ValueId {
  int64_t node = 0;
  int output = 0;

  friend auto operator<=>(const ValueId&, const ValueId&) = default;
};

// A place that a value must have: an offset in one of the table's arenas.
struct Pin {
  int arena = 0;
  size_t offset = 0;

  friend bool operator==(const Pin&, const Pin&) = default;
};

// An arena that values are pinned into, of an allocator kind ("" is ordinary memory).
struct PinnedArena {
  std::string name;
  std::string kind;

  friend bool operator==(const PinnedArena&, const PinnedArena&) = default;
};

// What passes have decided about the memory of a program's values, for the step plan. It belongs to
// a Program and names nodes by their ids in its graph; ProgramCopy carries it from one program to
// the next. Plain data without pointers, so that a program can be sent to another process.
struct MemoryTable {
  std::map<ValueId, Layout> layouts;  // of the values that are not row-major
  std::vector<PinnedArena> arenas;
  std::map<ValueId, Pin> pins;
  // Buckets whose inputs are pinned side by side in one arena, at BucketOffsets.
  std::set<int64_t> joined_buckets;

  Layout LayoutOf(Output value) const;
  void SetLayout(Output value, const Layout& layout);
  const Pin* PinOf(Output value) const;  // null: it may lie anywhere
  void SetPin(Output value, const Pin& pin);
  // Adds an arena, and returns its index.
  int AddArena(std::string name, std::string kind);

  // Copies what `from`, with the same arenas, has about `original` to `copy`, which stands for it
  // in the program of this table.
  void CopyNode(const MemoryTable& from, const Node& original, const Node& copy);

  friend bool operator==(const MemoryTable&, const MemoryTable&) = default;
};

}  // namespace tutti
