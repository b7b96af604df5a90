#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/device/kernel.h"

namespace tutti {

// What a layout-aware kernel would like: for each input and output the layout it is fastest with.
struct LayoutWish {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
};

// A kernel of an op on a kind of device ("cpu"), or its plain reference ("ref"), for some dtypes.
struct KernelDef {
  std::string op = {};
  std::string kind = {};
  // Of the op's first input (of its first output when it has none). Empty: every dtype.
  std::vector<DType> dtypes = {};
  std::function<std::unique_ptr<Kernel>()> make = {};
  // Pairs (input, output) that may share memory: the kernel reads each element before it writes it.
  std::vector<std::pair<int, int>> in_place = {};
  // Set for kernels that run faster on blocked layouts. Called with concrete types. Returns
  // row-major layouts if the kernel has no preference for these shapes.
  std::function<LayoutWish(const Node& node, std::span<const ValueType> inputs,
                           std::span<const ValueType> outputs)>
      layout_wish = {};
  // The kernel works element by element on inputs and outputs of one shape, so any layout will do
  // as long as it is the same for all of them.
  bool any_layout = false;
  // The kernel takes images (rank 4) row-major or with their channels in blocks, all of them alike
  // (pooling, a bias).
  bool image_layouts = false;
};

// All kernels. Filled once at start by RegisterCpuKernels and its like; read-only and thread-safe
// after that.
class KernelRegistry {
 public:
  static KernelRegistry& Global();
  void Add(KernelDef def);

  // The kernel for (op, kind, dtype). For "cpu", falls back to the reference kernel if there is no
  // faster one. Null if there is neither.
  const KernelDef* Find(std::string_view op, std::string_view kind, DType dtype) const;
  // The kernel of exactly that kind, without a fallback. Null if there is none.
  const KernelDef* FindExact(std::string_view op, std::string_view kind, DType dtype) const;

  // For messages: "cpu: float32; ref: all".
  std::string Describe(std::string_view op) const;

 private:
  std::map<std::pair<std::string, std::string>, std::vector<KernelDef>, std::less<>> kernels_;
};

// The dtype that chooses a node's kernel.
DType KernelDType(const Node& node);

// Registers a kernel class without constructor arguments:
//   AddKernel<AddKernelRef>(registry, "Add", "ref");
template <typename K>
void AddKernel(KernelRegistry& registry, std::string_view op, std::string_view kind,
               std::vector<DType> dtypes = {}, std::vector<std::pair<int, int>> in_place = {}) {
  KernelDef def;
  def.op = op;
  def.kind = kind;
  def.dtypes = std::move(dtypes);
  def.make = [] { return std::make_unique<K>(); };
  def.in_place = std::move(in_place);
  registry.Add(std::move(def));
}

// A kernel made from a function `absl::Status(KernelContext&)`, for ops that need no preparation.
void AddFunctionKernel(KernelRegistry& registry, std::string_view op, std::string_view kind,
                       std::function<absl::Status(KernelContext&)> compute,
                       std::vector<DType> dtypes = {},
                       std::vector<std::pair<int, int>> in_place = {});

}  // namespace tutti
