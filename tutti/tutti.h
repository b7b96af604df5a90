#pragma once

// All of Tutti for programs that use it: #include <tutti/tutti.h>.

#include "tutti/autodiff/gradients.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/data/dataset.h"
#include "tutti/data/fashion_mnist.h"
#include "tutti/data/idx.h"
#include "tutti/graph/graph.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/linalg.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/norm.h"
#include "tutti/graph/ops/pool.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/random.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/graph/ops/update.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/tensor/tensor.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/flags.h"
#include "tutti/train/main.h"
#include "tutti/train/optimizers/gradient_list.h"
#include "tutti/train/optimizers/learning_rate.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/reporting/progress.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti::internal {
// A program that includes this header has the CPU's kernels.
inline const bool kCpuKernelsRegistered = (RegisterCpuKernels(), true);
}  // namespace tutti::internal
