#include "tutti/train/spelling.h"

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

// How many letters must be left out, added, changed or swapped with the next to make one word of
// the other. Row by row over the table of all beginnings of both.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string LikelyMeant(std::string_view word, std::span<const std::string> names) {
  constexpr size_t kMost = 2;
  std::string best;
  size_t least = kMost + 1;
  for (const std::string& name : names) {
    const size_t longer = std::max(name.size(), word.size());
    if (longer - std::min(name.size(), word.size()) > kMost) continue;
    const size_t distance = Distance(word, name);
    if (distance < least && distance < longer / 2) {
      least = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace tutti
