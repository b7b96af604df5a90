#pragma once

#include "tutti/device/kernel.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/philox.h"

// What reference and fast kernels of the random ops share.
namespace tutti {

// The stream of context's node in this step: from its seeds, and its step input (input `first`,
// when there is one) or the count of the session's runs.
RandomStream StreamOf(const KernelContext& context, bool has_step, int first);

// Makes the output of RandomUniform, RandomNormal or TruncatedNormal from its shape input.
absl::StatusOr<RandomStream> StartRandom(KernelContext& context, const DynamicKernel& kernel);

// Dropout: the stream, the word of x's first element, words below `threshold` drop theirs.
struct DropoutPlan {
  RandomStream stream;
  uint64_t offset = 0;
  uint32_t threshold = 0;
  double scale = 1;
};
DropoutPlan PlanDropout(const KernelContext& context);

// The reference kernels, for the dtypes that have no faster ones. The output is there already.
void RandomUniformRef(KernelContext& context, const RandomStream& stream);
void RandomNormalRef(KernelContext& context, const RandomStream& stream);
void TruncatedNormalRef(KernelContext& context, const RandomStream& stream);

// Truncated normal numbers are z = sqrt(2) * erfinv(u), u even in (-kTruncatedEdge,
// kTruncatedEdge): erf(2 / sqrt(2)), the probability of lying within two standard deviations.
inline constexpr double kTruncatedEdge = 0.95449973610364158;

}  // namespace tutti
