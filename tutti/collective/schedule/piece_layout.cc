#include "tutti/collective/schedule/piece_layout.h"

#include <algorithm>

#include "tutti/base/checked.h"

namespace tutti::collective {
namespace {

constexpr int64_t kLineBytes = 64;

// `total` in `parts` parts, rounded up to whole lines unless that would leave parts empty for
// nothing: below a line a part, plain elements are cut.
int64_t PartOf(int64_t total, int parts, int64_t line) {
  const int64_t part = DivideRoundUp(total, parts);
  return part >= 2 * line ? RoundUp(part, line) : part;
}

}  // namespace

PieceLayout PieceLayout::Even(int64_t total, int chunks, int segments, int64_t element_bytes) {
  PieceLayout layout;
  layout.total_ = total;
  layout.line_ = std::max<int64_t>(1, kLineBytes / element_bytes);
  layout.segments_ = segments;
  layout.chunk_ = PartOf(total, chunks, layout.line_);
  layout.segment_ = PartOf(layout.chunk_, segments, layout.line_);
  return layout;
}

PieceLayout PieceLayout::Equal(int64_t count, int chunks, int segments, int64_t element_bytes) {
  PieceLayout layout;
  layout.total_ = count * chunks;
  layout.line_ = std::max<int64_t>(1, kLineBytes / element_bytes);
  layout.segments_ = segments;
  layout.chunk_ = count;
  layout.segment_ = PartOf(count, segments, layout.line_);
  return layout;
}

void PieceLayout::SetVarying(std::span<const int64_t> counts, int segments, int64_t element_bytes) {
  line_ = std::max<int64_t>(1, kLineBytes / element_bytes);
  segments_ = segments;
  begins_.assign(1, 0);
  for (int64_t count : counts) begins_.push_back(begins_.back() + count);
  total_ = begins_.back();
}

Range PieceLayout::OfSegment(int piece) const {
  const int chunk = piece / segments_;
  const int64_t segment = piece % segments_;
  int64_t begin, end, part;
  if (begins_.empty()) {
    begin = std::min(chunk * chunk_, total_);
    end = std::min(begin + chunk_, total_);
    part = segment_;
  } else {
    begin = begins_[chunk];
    end = begins_[chunk + 1];
    part = PartOf(end - begin, segments_, line_);
  }
  const int64_t first = std::min(begin + segment * part, end);
  return {first, std::min(part, end - first)};
}

}  // namespace tutti::collective
