#pragma once

#include <cstdint>
#include <vector>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/ops/update_table.h"

// What all kernels of the optimizer updates share: finding and locking variables, reading
// hyper-parameters, checking everything before the first byte changes, summing repeated rows, and
// splitting the work. What is left to the reference and to the CPU kernels is one loop per rule.
namespace tutti {

// The hyper-parameters of one run of an update.
struct UpdateParameters {
  double learning_rate = 0;
  double scale = 1;  // of the gradient
  double momentum = 0;
  bool nesterov = false;
  double epsilon = 0;
  double rho = 0;
  double beta1 = 0;
  double beta2 = 0;
  double correction1 = 1;  // 1 - beta1^step
  double correction2 = 1;  // 1 - beta2^step
  double weight_decay = 0;
  double l1 = 0;
  double l2 = 0;
  double beta = 0;
};

// Updates `count` elements. state[0] is the variable, state[1] and state[2] its slots.
using UpdateFunction = void (*)(const UpdateParameters& parameters, void* const* state,
                                const void* gradient, int64_t count);

// Finds the loop for a rule and an element type; null when there is none.
using UpdateFunctionTable = UpdateFunction (*)(UpdateRule rule, DType dtype);

// Registers the dense, sparse and fused kernels of every update on top of the loops of `table`.
void AddUpdateKernels(KernelRegistry& registry, std::string_view kind, std::vector<DType> dtypes,
                      UpdateFunctionTable table);

}  // namespace tutti
