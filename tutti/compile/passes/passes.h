#pragma once

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device.h"

// The compiler passes, one file each; pipeline.cc has the order in which they run. A pass takes a
// program and returns one that computes the same. If there is nothing to do it returns the program
// that it was given, because copying a large program costs more than most passes. Shapes are
// concrete as far as the feeds determine them.
namespace tutti {

// What passes may look at beside the program.
struct PassContext {
  Device* device = nullptr;  // kernels are looked up for its type
  // A device of this process. What is constant and was placed on a device of its type is computed
  // by its kernels; null: nothing is computed while compiling.
  Device* folding = nullptr;
};

absl::StatusOr<Program> Prune(Program program, const PassContext& context);
absl::StatusOr<Program> FoldConstants(Program program, const PassContext& context);
absl::StatusOr<Program> Simplify(Program program, const PassContext& context);
absl::StatusOr<Program> MergeCommon(Program program, const PassContext& context);
absl::StatusOr<Program> GatherInPlace(Program program, const PassContext& context);
absl::StatusOr<Program> FuseMatrix(Program program, const PassContext& context);
absl::StatusOr<Program> FuseDescent(Program program, const PassContext& context);
absl::StatusOr<Program> KeepPositions(Program program, const PassContext& context);
absl::StatusOr<Program> FuseElementwise(Program program, const PassContext& context);
absl::StatusOr<Program> FuseUpdates(Program program, const PassContext& context);
absl::StatusOr<Program> ChooseLayouts(Program program, const PassContext& context);
absl::StatusOr<Program> PlaceBuckets(Program program, const PassContext& context);

}  // namespace tutti
