#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {

inline Tensor Number(int64_t value) { return Tensor::Scalar<int64_t>(value); }

// A graph and the device that holds its mutexes, accumulators, gates and clocks.
class SyncTest : public ::testing::Test {
 protected:
  Output Integer() { return Placeholder(graph_, kInt64, {}); }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

}  // namespace tutti
