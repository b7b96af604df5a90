// The area under the ROC curve is the share of pairs (positive, negative) in which the positive
// scores higher; pairs with equal scores count half. Sorted by score it is one pass:
//
//   area = sum over scores of positives * (negatives below + negatives here / 2) / (P * N)
//
// A list of all scores would be exact but grows with the data. So a state that holds too many
// entries is compressed: sorted, equal scores joined, and then neighbours joined as long as the
// joined entry has at most a share of 4 / kAucScores of the positives, and of the negatives. Two
// entries side by side that were not joined exceed one of these shares together, so there are at
// most kAucScores / 2 such pairs, and at most kAucScores entries are left.
//
// Joining errs only in the pairs that lie inside an entry: at most p * n / 2 of P * N pairs each,
// and over all entries at most max(n / N) / 2 = 2 / kAucScores = 3e-5. An entry also moves later
// scores that fall between its ends to one of its sides, which has the same bound. A compression
// takes place at most every kAucScores samples, with shares of what was seen by then; so the error
// after 4 million samples is below 64 * 3e-5 / 2 = 1e-3 in the worst case. Errors of single entries
// have both signs: what metrics_test.cc measures is below 1e-5.
#include "tutti/train/metrics/auc.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::metrics {
namespace {

struct Entry {
  double score = 0;
  double positives = 0;
  double negatives = 0;
};

// By score, equal scores joined. NaN scores stand at the end.
std::vector<Entry> Sorted(std::span<const double> state) {
  std::vector<Entry> entries(state.size() / 3);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i] = {state[3 * i], state[3 * i + 1], state[3 * i + 2]};
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::isnan(b.score) ? !std::isnan(a.score) : a.score < b.score;
  });
  size_t kept = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (kept > 0 && entries[kept - 1].score == entries[i].score) {
      entries[kept - 1].positives += entries[i].positives;
      entries[kept - 1].negatives += entries[i].negatives;
    } else {
      entries[kept++] = entries[i];
    }
  }
  entries.resize(kept);
  return entries;
}

void JoinNeighbours(std::vector<Entry>& entries) {
  double positives = 0, negatives = 0;
  for (const Entry& entry : entries) positives += entry.positives, negatives += entry.negatives;
  const double most_positives = 4 * positives / double(kAucScores);
  const double most_negatives = 4 * negatives / double(kAucScores);
  size_t kept = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    if (kept > 0 && !std::isnan(entry.score) &&
        entries[kept - 1].positives + entry.positives <= most_positives &&
        entries[kept - 1].negatives + entry.negatives <= most_negatives) {
      entries[kept - 1].positives += entry.positives;
      entries[kept - 1].negatives += entry.negatives;
      entries[kept - 1].score = entry.score;
    } else {
      entries[kept++] = entry;
    }
  }
  entries.resize(kept);
}

}  // namespace

void MergeAuc(std::vector<double>& state, std::span<const double> other) {
  state.insert(state.end(), other.begin(), other.end());
  if (state.size() / 3 <= 2 * kAucScores) return;
  std::vector<Entry> entries = Sorted(state);
  if (entries.size() > kAucScores) JoinNeighbours(entries);
  state.clear();
  for (const Entry& entry : entries) {
    state.insert(state.end(), {entry.score, entry.positives, entry.negatives});
  }
}

double FinishAuc(std::span<const double> state) {
  double negatives = 0, pairs = 0, positives = 0;
  for (const Entry& entry : Sorted(state)) {
    if (std::isnan(entry.score)) return std::numeric_limits<double>::quiet_NaN();
    pairs += entry.positives * (negatives + entry.negatives / 2);
    negatives += entry.negatives;
    positives += entry.positives;
  }
  if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
  return pairs / (positives * negatives);
}

}  // namespace tutti::metrics
