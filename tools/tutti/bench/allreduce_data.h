#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"

namespace tutti::tools {

// The numbers that the ranks of a benchmark reduce. Every call has others, written by the rank
// itself right before it, as gradients are: so each call finds the data in the cache of the rank
// that wrote it, and a result of an earlier call is not taken for its own.
//
// Element i of a rank depends on i modulo kRow, the rank and the call: small whole numbers, whose
// sums float32 holds exactly. Not thread-safe.
class FreshData {
 public:
  // `contributors`: the first so many ranks bring data. They get the result, and nobody else does
  // unless `everybody_gets_it`, as from a broadcast.
  FreshData(int rank, int contributors, collective::Reduction reduction, collective::Wire wire,
            bool everybody_gets_it = false);

  // Writes the data of call number `call`.
  void Write(float* data, int64_t count, int64_t call) const;
  // Compares a result of that call, on the ranks that get one. DATA_LOSS names the first element
  // that differs. What travelled rounded, a mean or a product may differ by rounding.
  absl::Status Check(const float* data, int64_t count, int64_t call) const;

 private:
  static constexpr int64_t kRow = 32;
  using Row = std::array<float, kRow>;
  float Value(int rank, int64_t element, int64_t call) const;
  Row Expected(int64_t count, int64_t call) const;  // the first elements of a result

  const int rank_;
  const int contributors_;
  const collective::Reduction reduction_;
  const float tolerance_;  // relative
  const bool gets_result_;
};

}  // namespace tutti::tools
