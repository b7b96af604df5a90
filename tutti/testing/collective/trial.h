#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"

// Operations on data whose outcome is known beforehand. For tests.
namespace tutti::collective {

// One operation that all ranks call alike.
struct Trial {
  std::string algorithm;  // empty: the tuner chooses
  Operation operation = Operation::kAllReduce;
  DType dtype = kFloat32;
  Reduction reduction = Reduction::kSum;
  Wire wire = Wire::kAsIs;
  int64_t count = 0;     // elements: of the data, or of a chunk
  bool varying = false;  // an all-gather with another count for every rank, some of them 0
  int root = 0;
  uint32_t salt = 0;  // other salt, other data
};

std::string Describe(const Trial& trial, int ranks);

// How many elements a rank's buffer holds.
int64_t ElementsOf(const Trial& trial, int ranks);

// One rank's part in a trial. Memory is the caller's, for ElementsOf() elements each, and must stay
// until all ranks are done; `output` is used by all-to-all only. Not thread-safe.
class TrialPart {
 public:
  TrialPart(const Trial& trial, int rank, int ranks, std::byte* data, std::byte* output);

  // Gives `data` what this rank brings.
  void Fill();
  Handle Start(Group& group) const;
  // DATA_LOSS names the first element that is not what it must be: exactly where nothing is
  // rounded, else within the rounding of a sum in float64. Elements that may be anything are left
  // out.
  absl::Status Check() const;
  // What the operation leaves on this rank, and whether all ranks must have the same bits there.
  std::span<const std::byte> result() const;
  bool same_everywhere() const;

 private:
  // Elements [begin, begin + count) must be those of `source` from begin + shift on, or the
  // reduction over all ranks (-1).
  struct Expected {
    int64_t begin;
    int64_t count;
    int source;
    int64_t shift;
  };
  std::vector<Expected> Outcome() const;

  const Trial trial_;
  const int rank_;
  const int ranks_;
  std::byte* const data_;
  std::byte* const output_;
  std::vector<int64_t> counts_;  // per rank, if they vary
};

}  // namespace tutti::collective
