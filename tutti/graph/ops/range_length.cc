#include "tutti/graph/ops/range_length.h"

#include <cmath>

namespace tutti {
namespace {

__extension__ typedef __int128 Wide;  // holds any difference of two int64

absl::StatusOr<int64_t> Count(Wide start, Wide limit, Wide delta) {
  if (delta == 0) return InvalidArgument("delta is 0; expected another value");
  const Wide distance = delta > 0 ? limit - start : start - limit;
  const Wide step = delta > 0 ? delta : -delta;
  if (distance <= 0) return 0;
  const Wide count = (distance + step - 1) / step;
  if (count > INT64_MAX) return InvalidArgument("the range has more than 2^63 values");
  return int64_t(count);
}

absl::StatusOr<int64_t> CountReal(double start, double limit, double delta) {
  if (delta == 0 || !std::isfinite(delta) || !std::isfinite(start) || !std::isfinite(limit)) {
    return InvalidArgument(
        "start {}, limit {}, delta {}; expected finite values and a delta that is not 0", start,
        limit, delta);
  }
  const double count = std::ceil((limit - start) / delta);
  if (count <= 0) return 0;
  if (!(count < 0x1p62)) return InvalidArgument("the range has {} values, too many", count);
  return int64_t(count);
}

}  // namespace

absl::StatusOr<int64_t> RangeLength(const Tensor& start, const Tensor& limit, const Tensor& delta) {
  switch (start.dtype()) {
    case kInt32:
      return Count(*start.data<int32_t>(), *limit.data<int32_t>(), *delta.data<int32_t>());
    case kInt64:
      return Count(*start.data<int64_t>(), *limit.data<int64_t>(), *delta.data<int64_t>());
    case kFloat32:
      return CountReal(*start.data<float>(), *limit.data<float>(), *delta.data<float>());
    default:
      return CountReal(*start.data<double>(), *limit.data<double>(), *delta.data<double>());
  }
}

}  // namespace tutti
