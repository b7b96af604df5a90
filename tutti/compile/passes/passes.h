#pragma once

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device.h"

// The compiler passes, in the order in which they run, one file each. Each takes a program and
// gives another that computes the same. Shapes are concrete as far as the feeds tell.
namespace tutti {

// What passes may look at beside the program.
struct PassContext {
  Device* device = nullptr;  // kernels are looked up for its type
};

absl::StatusOr<Program> Prune(const Program& program, const PassContext& context);
absl::StatusOr<Program> FoldConstants(const Program& program, const PassContext& context);
absl::StatusOr<Program> Simplify(const Program& program, const PassContext& context);
absl::StatusOr<Program> MergeCommon(const Program& program, const PassContext& context);
absl::StatusOr<Program> FuseMatrix(const Program& program, const PassContext& context);
absl::StatusOr<Program> FuseDescent(const Program& program, const PassContext& context);
absl::StatusOr<Program> KeepPositions(const Program& program, const PassContext& context);
absl::StatusOr<Program> FuseElementwise(const Program& program, const PassContext& context);
absl::StatusOr<Program> FuseUpdates(const Program& program, const PassContext& context);
absl::StatusOr<Program> ChooseLayouts(const Program& program, const PassContext& context);
absl::StatusOr<Program> PlaceBuckets(const Program& program, const PassContext& context);

}  // namespace tutti
