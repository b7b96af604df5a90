#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti {

// Positions 0..n-1 that name rows, by the row that they name: groups in ascending order of row
// numbers, positions of a group in ascending order. Not thread-safe. It keeps its memory, so that
// a steady step allocates nothing.
//
//   groups.Begin(n);
//   for (...) groups.Add(row);          // position 0, 1, ...
//   groups.Find();
//   for (int64_t g = 0; g < groups.size(); ++g) Use(groups.row(g), groups.entries(g));
class RowGroups {
 public:
  struct Entry {
    int64_t row;
    int64_t position;
  };

  void Begin(int64_t count) {
    entries_.clear();
    entries_.reserve(size_t(count));
    ascending_ = true;
  }
  void Add(int64_t row) {
    if (!entries_.empty() && entries_.back().row >= row) ascending_ = false;
    entries_.push_back({row, int64_t(entries_.size())});
  }
  // Groups what was added since Begin.
  void Find();

  int64_t size() const { return int64_t(begins_.size()) - 1; }  // groups
  int64_t row(int64_t group) const { return entries_[size_t(begins_[size_t(group)])].row; }
  std::span<const Entry> entries(int64_t group) const {
    const auto begin = size_t(begins_[size_t(group)]);
    return {entries_.data() + begin, size_t(begins_[size_t(group) + 1]) - begin};
  }

 private:
  void Sort();

  std::vector<Entry> entries_;
  std::vector<Entry> spare_;
  std::vector<int64_t> begins_ = {0};  // of groups in entries_, and the end
  bool ascending_ = true;              // strictly, as they were added
};

}  // namespace tutti
