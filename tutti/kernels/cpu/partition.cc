// The k largest of each row, row by row on all cores. A float becomes a number whose order is that
// of the result, and its index goes below it: larger values first, NaN before all, of equal ones
// the first. So what is selected are plain 64-bit integers. One pass keeps those above a threshold
// in a short list; whenever the list is full the k best of it stay, and the least of them is the
// next threshold. Of random values few pass it, so a row costs little more than reading it.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <vector>

#include "tutti/base/checked.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/cpu/stand_in.h"
#include "tutti/kernels/shape/gather_geometry.h"

namespace tutti {
namespace {

constexpr int64_t kElementsPerCore = 16384;  // fewer are not worth another core
constexpr int64_t kMostColumns = int64_t{1} << 32;

// Larger for what comes first in the result. REQUIRES: 0 <= index < kMostColumns.
uint64_t KeyOf(float value, int64_t index) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0f : value);
  uint32_t order = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  if (value != value) order = std::numeric_limits<uint32_t>::max();
  return uint64_t{order} << 32 | (std::numeric_limits<uint32_t>::max() - uint32_t(index));
}

// How many keys the list of a row holds.
int64_t ListLength(const TopKGeometry& g) {
  return std::min(g.width, std::max<int64_t>(2 * g.k, 64));
}

// `best`: room for the list.
void SelectRow(const float* row, const TopKGeometry& g, uint64_t* best, float* values,
               int64_t* indices) {
  const int64_t full = ListLength(g);
  uint64_t threshold = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < g.width; ++i) {
    const uint64_t key = KeyOf(row[i], i);
    if (key < threshold) continue;
    best[count++] = key;
    if (count < full || i + 1 == g.width) continue;
    std::nth_element(best, best + (g.k - 1), best + count, std::greater<>());
    count = g.k;
    threshold = best[g.k - 1];
  }
  std::partial_sort(best, best + g.k, best + count, std::greater<>());
  for (int64_t i = 0; i < g.k; ++i) {
    const auto index = int64_t(std::numeric_limits<uint32_t>::max() - uint32_t(best[i]));
    indices[i] = index;
    values[i] = row[index];
  }
}

class TopKKernel final : public DynamicKernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    TUTTI_RETURN_IF_ERROR(DynamicKernel::Prepare(context));
    return reference_.Prepare(context);
  }

  absl::Status Compute(KernelContext& context) override {
    if (context.input(0).shape().dim(-1) > kMostColumns) return reference_.Compute(context);
    TUTTI_ASSIGN_OR_RETURN(const TopKGeometry g, StartTopK(context, *this));
    if (g.rows == 0 || g.k == 0) return absl::OkStatus();
    const float* const x = context.input(0).data<float>();
    float* const values = context.output(0).data<float>();
    int64_t* const indices = context.output(1).data<int64_t>();
    const int64_t parts = std::min<int64_t>(context.team().cores(),
                                            DivideRoundUp(g.rows * g.width, kElementsPerCore));
    lists_.resize(size_t(parts * ListLength(g)));
    context.team().ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        uint64_t* const best = lists_.data() + part * ListLength(g);
        for (int64_t row = part * g.rows / parts; row < (part + 1) * g.rows / parts; ++row) {
          SelectRow(x + row * g.width, g, best, values + row * g.k, indices + row * g.k);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  StandIn reference_;
  std::vector<uint64_t> lists_;  // one for each part of the rows; the memory stays from run to run
};

}  // namespace

void RegisterPartitionCpuKernels(KernelRegistry& registry) {
  AddKernel<TopKKernel>(registry, "TopK", "cpu", {kFloat32});
}

}  // namespace tutti
