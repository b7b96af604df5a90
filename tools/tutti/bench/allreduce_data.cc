#include "tools/tutti/bench/allreduce_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce_values.h"

namespace tutti::tools {
namespace {

using collective::Reduction;
using collective::Wire;

float ToleranceOf(Reduction reduction, Wire wire) {
  if (wire != Wire::kAsIs) return 0.05f;
  return reduction == Reduction::kMean || reduction == Reduction::kProduct ? 1e-5f : 0.0f;
}

}  // namespace

FreshData::FreshData(int rank, int contributors, Reduction reduction, Wire wire,
                     bool everybody_gets_it)
    : rank_(rank),
      contributors_(contributors),
      reduction_(reduction),
      tolerance_(ToleranceOf(reduction, wire)),
      gets_result_(everybody_gets_it || rank < contributors) {}

float FreshData::Value(int rank, int64_t element, int64_t call) const {
  return static_cast<float>(1 + (element + call) % kRow) * static_cast<float>(1 + rank % 7);
}

void FreshData::Write(float* data, int64_t count, int64_t call) const {
  Row row;
  // No more than is needed: calls back to back are timed with it.
  for (int64_t i = 0; i < std::min(kRow, count); ++i) row[i] = Value(rank_, i, call);
  int64_t i = 0;
  for (; i + kRow <= count; i += kRow) std::memcpy(data + i, row.data(), sizeof(row));
  if (i < count) std::memcpy(data + i, row.data(), static_cast<size_t>(count - i) * sizeof(float));
}

FreshData::Row FreshData::Expected(int64_t count, int64_t call) const {
  Row row;
  std::vector<double> values(static_cast<size_t>(contributors_));
  for (int64_t i = 0; i < std::min(kRow, count); ++i) {
    for (int rank = 0; rank < contributors_; ++rank) {
      values[static_cast<size_t>(rank)] = Value(rank, i, call);
    }
    row[i] = static_cast<float>(collective::ReduceValues(reduction_, values));
  }
  return row;
}

absl::Status FreshData::Check(const float* data, int64_t count, int64_t call) const {
  if (!gets_result_) return absl::OkStatus();
  const Row expected = Expected(count, call);
  for (int64_t begin = 0; begin < count; begin += kRow) {
    const int64_t n = std::min(kRow, count - begin);
    if (std::memcmp(data + begin, expected.data(), static_cast<size_t>(n) * sizeof(float)) == 0) {
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      const float got = data[begin + i];
      // Not the other way round: a NaN is wrong. Products of many ranks are infinite on both sides.
      if (got == expected[i]) continue;
      if (std::abs(got - expected[i]) <= tolerance_ * std::abs(expected[i])) continue;
      return DataLoss("element {} of {} is {} on rank {} after call {}, expected {}", begin + i,
                      count, got, rank_, call, expected[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti::tools
