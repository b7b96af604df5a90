#include "tutti/collective/schedule/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace tutti::collective {

// Adds a range behind all others, growing the last one where it fits on.
void Contents::Append(int64_t begin, int64_t end, int64_t times) {
  if (begin >= end || times == 0) return;
  if (!ranges_.empty() && ranges_.back().end == begin && ranges_.back().times == times) {
    ranges_.back().end = end;
  } else {
    ranges_.push_back({begin, end, times});
  }
}

Contents::Ptr Contents::Of(int64_t begin, int64_t end) {
  auto contents = std::make_shared<Contents>();
  contents->Append(begin, end, 1);
  return contents;
}

Contents::Ptr Contents::Sum(const Ptr& a, const Ptr& b) {
  if (a == nullptr || b == nullptr) return nullptr;
  auto sum = std::make_shared<Contents>();
  auto i = a->ranges_.begin();
  auto j = b->ranges_.begin();
  const auto a_end = a->ranges_.end();
  const auto b_end = b->ranges_.end();
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  // Sweeps over both: between `at` and the next place where either changes, nothing does.
  int64_t at = std::min(i == a_end ? kNever : i->begin, j == b_end ? kNever : j->begin);
  while (i != a_end || j != b_end) {
    int64_t next = kNever;
    int64_t times = 0;
    for (const auto& [range, end] : {std::pair(i, a_end), std::pair(j, b_end)}) {
      if (range == end) continue;
      const bool inside = range->begin <= at;
      if (inside) times += range->times;
      next = std::min(next, inside ? range->end : range->begin);
    }
    sum->Append(at, next, times);
    at = next;
    if (i != a_end && i->end <= at) ++i;
    if (j != b_end && j->end <= at) ++j;
  }
  return sum;
}

bool Contents::Equal(const Ptr& a, const Ptr& b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a == b || a->ranges_ == b->ranges_;
}

std::string Contents::Describe(const Ptr& contents, int ranks) {
  if (contents == nullptr || contents->ranges_.empty()) return "nothing";
  std::string text;
  int64_t last_piece = -1;
  int64_t last_times = 0;
  for (const Range& range : contents->ranges_) {
    for (int64_t begin = range.begin; begin < range.end;) {
      const int64_t piece = begin / ranks;
      const int64_t end = std::min(range.end, (piece + 1) * ranks);
      if (piece == last_piece && range.times == last_times) {
        text += ", ";
      } else {
        text += text.empty() ? "" : "; ";
        if (range.times != 1) text += fmt::format("{} times ", range.times);
        text += fmt::format("piece {} of ranks ", piece);
      }
      text += fmt::format("{}", begin % ranks);
      if (end - begin > 1) text += fmt::format("-{}", (end - 1) % ranks);
      last_piece = piece;
      last_times = range.times;
      begin = end;
      if (text.size() > 200) return text + " ...";
    }
  }
  return text;
}

}  // namespace tutti::collective
