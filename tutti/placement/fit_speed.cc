// Least squares with three unknowns, the time of an operation, of a byte in the caches, and of one
// in memory:
//
//   operations * p + bytes * (1 - m) * c + bytes * m * d  =  seconds      m: how far out of cache
// Each equation is divided by its time, so that short and long nodes have the same weight. The
// unknowns must not be negative. With three unknowns there are seven non-empty sets of positive
// ones: each set is solved with the other unknowns fixed at 0, and the solution with the least
// error and no negative value is taken.
#include "tutti/placement/fit_speed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace tutti::placement {
namespace {

constexpr int kUnknowns = 3;
using Row = std::array<double, kUnknowns>;

// Solves the normal equations for the unknowns in `set`; the others are 0. Returns false if the
// equations are singular.
bool Solve(const std::vector<Row>& rows, unsigned set, Row& solution) {
  std::array<std::array<double, kUnknowns + 1>, kUnknowns> matrix{};
  for (const Row& row : rows) {
    for (int i = 0; i < kUnknowns; ++i) {
      if ((set >> i & 1) == 0) continue;
      for (int j = 0; j < kUnknowns; ++j) {
        if ((set >> j & 1) != 0) matrix[size_t(i)][size_t(j)] += row[size_t(i)] * row[size_t(j)];
      }
      matrix[size_t(i)][kUnknowns] += row[size_t(i)];  // every right-hand side is 1
    }
  }
  solution = {};
  for (size_t i = 0; i < kUnknowns; ++i) {
    if ((set >> i & 1) == 0) matrix[i][i] = 1;
  }
  for (size_t i = 0; i < kUnknowns; ++i) {
    size_t pivot = i;
    for (size_t k = i + 1; k < kUnknowns; ++k) {
      if (std::abs(matrix[k][i]) > std::abs(matrix[pivot][i])) pivot = k;
    }
    std::swap(matrix[i], matrix[pivot]);
    if (!(std::abs(matrix[i][i]) > 1e-12)) return false;
    for (size_t k = 0; k < kUnknowns; ++k) {
      if (k == i) continue;
      const double factor = matrix[k][i] / matrix[i][i];
      for (size_t j = i; j <= kUnknowns; ++j) matrix[k][j] -= factor * matrix[i][j];
    }
  }
  for (size_t i = 0; i < kUnknowns; ++i) solution[i] = matrix[i][kUnknowns] / matrix[i][i];
  return true;
}

double ErrorOf(const std::vector<Row>& rows, const Row& solution) {
  double sum = 0;
  for (const Row& row : rows) {
    double part = -1;
    for (size_t i = 0; i < kUnknowns; ++i) part += row[i] * solution[i];
    sum += part * part;
  }
  return sum;
}

}  // namespace

KindSpeed FitSpeed(std::span<const WorkSample> samples) {
  // Columns are scaled by their largest entry: operations are many, and seconds few.
  std::vector<Row> rows;
  Row scale{};
  for (const WorkSample& sample : samples) {
    if (sample.seconds <= 0) continue;
    const double memory = sample.bytes * MemoryPart(sample.bytes);
    rows.push_back({sample.operations / sample.seconds, (sample.bytes - memory) / sample.seconds,
                    memory / sample.seconds});
    for (size_t i = 0; i < kUnknowns; ++i) scale[i] = std::max(scale[i], rows.back()[i]);
  }
  for (Row& row : rows) {
    for (size_t i = 0; i < kUnknowns; ++i) row[i] = scale[i] > 0 ? row[i] / scale[i] : 0;
  }
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned set = 1; set < 1u << kUnknowns; ++set) {
    Row solution;
    if (!Solve(rows, set, solution)) continue;
    if (*std::min_element(solution.begin(), solution.end()) < 0) continue;
    const double error = ErrorOf(rows, solution);
    if (error < least * (1 - 1e-9)) {
      least = error;
      best = solution;
    }
  }
  for (size_t i = 0; i < kUnknowns; ++i) best[i] = scale[i] > 0 ? best[i] / scale[i] : 0;
  return {.per_operation = best[0], .per_byte_cached = best[1], .per_byte_memory = best[2]};
}

}  // namespace tutti::placement
