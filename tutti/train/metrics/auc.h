#pragma once

#include <cstddef>
#include <span>
#include <vector>

// The state behind metrics::Auc: a list of (score, positives, negatives), three numbers each, in
// any order. A batch brings one entry a sample.
namespace tutti::metrics {

// So many distinct scores are kept as they are. Twice as many are collected before they are joined.
inline constexpr size_t kAucScores = 1 << 16;

// Appends `other`. Where there are more than 2 * kAucScores entries then, joins those with equal
// scores, and neighbours if there are still more than kAucScores.
void MergeAuc(std::vector<double>& state, std::span<const double> other);

// The area; NaN where there are no positives or no negatives, or a score is NaN.
double FinishAuc(std::span<const double> state);

}  // namespace tutti::metrics
