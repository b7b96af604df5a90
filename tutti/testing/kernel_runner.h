#pragma once

#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/device/device.h"
#include "tutti/graph/graph.h"

namespace tutti::testing {

// Which kernels a KernelRunner takes.
enum class KernelChoice {
  kReference,  // "ref" and nothing else
  kCpuOnly,    // "cpu" and nothing else; NOT_FOUND where an op has none
  kCpu,        // "cpu", with the reference where there is none, as a Session does
};

// Values by output, as Session::Run takes them.
using Feeds = std::unordered_map<Output, Tensor, OutputHash>;

// Runs nodes one after the other in the order of their ids, straight on the kernels: no passes, no
// plan, no executor. Slow and suspicious: outputs and scratch are filled with 0xFF before each
// Compute, and a kernel that writes past its outputs or scratch, changes an input, or returns
// another type than the shape function promised is reported as INTERNAL. The shape functions run
// again with the shapes of the fed values, so graphs with unknown dimensions work too. Variables
// live as long as the runner. Not thread-safe.
//
//   KernelRunner runner(KernelChoice::kReference);
//   Tensor y = (*runner.Run({{x, value}}, {y_output}))[0];
class KernelRunner {
 public:
  explicit KernelRunner(KernelChoice choice, int cores = 1);

  // The values of `fetches`, computed with `feeds` in place of the outputs they name. All fetches
  // and feeds belong to one graph.
  absl::StatusOr<std::vector<Tensor>> Run(const Feeds& feeds, std::span<const Output> fetches,
                                          std::span<const Node* const> targets = {});
  absl::StatusOr<std::vector<Tensor>> Run(const Feeds& feeds,
                                          std::initializer_list<Output> fetches) {
    return Run(feeds, std::span(fetches.begin(), fetches.size()));
  }

  // All outputs of one op on these inputs.
  absl::StatusOr<std::vector<Tensor>> RunOp(std::string_view op, std::span<const Tensor> inputs,
                                            const AttrList& attrs = {});

  // From now on outputs take the memory of inputs wherever the kernel's definition allows it.
  void set_in_place(bool in_place) { in_place_ = in_place; }

  // The step that random ops see; grows by one with each Run.
  void set_random_step(int64_t step) { random_step_ = step; }

  Device& device() { return device_; }
  KernelChoice choice() const { return choice_; }

 private:
  friend class GraphRun;

  const KernelChoice choice_;
  bool in_place_ = false;
  int64_t random_step_ = 0;
  Device device_;
};

}  // namespace tutti::testing
