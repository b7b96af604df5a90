#include "tutti/runtime/calibrate.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tutti/kernels/register.h"
#include "tutti/runtime/register.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

TEST(Calibrate, MeasuresEveryKindThatItAsksFor) {
  RegisterCpuKernels();
  RegisterRuntimeKernels();
  const auto speed = MeasureMachine();
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_GT(speed->node_seconds, 0);
  EXPECT_GT(speed->same_task.latency, 0);
  for (int i = 0; i < placement::kWorkKinds; ++i) {
    const auto kind = placement::WorkKind(i);
    if (kind == placement::WorkKind::kNone) continue;
    const placement::KindSpeed& found = speed->kinds[size_t(i)];
    EXPECT_GT(found.per_operation + found.per_byte_cached, 0) << placement::NameOf(kind);
  }
}

}  // namespace
}  // namespace tutti
