#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tutti/device/device.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/gather_geometry.h"
#include "tutti/tensor/product.h"

namespace tutti {
namespace {

const std::byte* Bytes(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.raw()); }
std::byte* Bytes(Tensor& tensor) { return static_cast<std::byte*>(tensor.raw()); }

// A number that is equal for equal values: both zeros are one, and so are all NaNs.
template <typename T>
uint64_t KeyOf(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return KeyOf(float(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(value)) return ~uint64_t{0};
    return std::bit_cast<uint64_t>(double(value == 0 ? T{0} : value));
  } else {
    return uint64_t(value);
  }
}

// A hash table with open addressing finds the values that were there before; its memory stays from
// run to run.
class UniqueKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& context) override {
    return VisitDType(context.input(0).dtype(), [&](auto tag) {
      return ComputeTyped<typename decltype(tag)::type>(context);
    });
  }

 private:
  template <typename T>
  absl::Status ComputeTyped(KernelContext& context) {
    const Tensor& x = context.input(0);
    TUTTI_RETURN_IF_ERROR(SetShape(context, 1, x.shape()));
    const T* const values = x.data<T>();
    int64_t* const inverse = context.output(1).data<int64_t>();
    slots_.assign(std::bit_ceil(size_t(x.elements()) * 2 + 1), -1);
    first_.clear();
    counts_.clear();
    for (int64_t i = 0; i < x.elements(); ++i) {
      const int64_t found = FindOrAdd(values, KeyOf(values[i]));
      if (found == int64_t(first_.size())) {
        first_.push_back(i);
        counts_.push_back(0);
      }
      ++counts_[size_t(found)];
      inverse[i] = found;
    }
    const Shape distinct{int64_t(first_.size())};
    TUTTI_RETURN_IF_ERROR(SetShape(context, 0, distinct));
    TUTTI_RETURN_IF_ERROR(SetShape(context, 2, distinct));
    for (size_t i = 0; i < first_.size(); ++i) {
      context.output(0).data<T>()[i] = values[first_[i]];
      context.output(2).data<int64_t>()[i] = counts_[i];
    }
    return absl::OkStatus();
  }

  // The number of the value with this key, or the next free number, which then belongs to it.
  template <typename T>
  int64_t FindOrAdd(const T* values, uint64_t key) {
    const size_t mask = slots_.size() - 1;
    size_t slot = size_t((key ^ (key >> 32)) * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (slots_[slot] >= 0) {
      if (KeyOf(values[first_[size_t(slots_[slot])]]) == key) return slots_[slot];
      slot = (slot + 1) & mask;
    }
    slots_[slot] = int64_t(first_.size());
    return slots_[slot];
  }

  std::vector<int64_t> slots_;  // the number of a distinct value, or -1
  std::vector<int64_t> first_;  // where each distinct value stands first
  std::vector<int64_t> counts_;
};

// Does a come before b? Larger values first, NaN before all.
template <typename T>
bool Before(T a, T b) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return Before(float(a), float(b));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
    return a > b;
  } else {
    return a > b;
  }
}

class TopKKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& context) override {
    TUTTI_ASSIGN_OR_RETURN(const TopKGeometry g, StartTopK(context, *this));
    if (g.k == 0) return absl::OkStatus();
    order_.resize(size_t(g.width));
    VisitDType(context.input(0).dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (int64_t row = 0; row < g.rows; ++row) {
        SelectRow(context.input(0).data<T>() + row * g.width, g.width, g.k,
                  context.output(0).data<T>() + row * g.k,
                  context.output(1).data<int64_t>() + row * g.k);
      }
    });
    return absl::OkStatus();
  }

 private:
  template <typename T>
  void SelectRow(const T* row, int64_t width, int64_t k, T* values, int64_t* indices) {
    for (int64_t i = 0; i < width; ++i) order_[size_t(i)] = i;
    std::partial_sort(order_.begin(), order_.begin() + k, order_.end(),
                      [row](int64_t a, int64_t b) {
                        if (Before(row[a], row[b])) return true;
                        return !Before(row[b], row[a]) && a < b;
                      });
    for (int64_t i = 0; i < k; ++i) {
      indices[i] = order_[size_t(i)];
      values[i] = row[order_[size_t(i)]];
    }
  }

  std::vector<int64_t> order_;
};

class DynamicPartitionKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& context) override {
    const Tensor& data = context.input(0);
    const Tensor& partitions = context.input(1);
    const int rank = partitions.shape().rank();
    if (rank > data.shape().rank() ||
        Shape(data.shape().dims().first(rank)) != partitions.shape()) {
      return InvalidArgument(
          "data is {}, partitions is {}; expected partitions to have the first dimensions of data",
          data.shape().ToString(), partitions.shape().ToString());
    }
    TUTTI_RETURN_IF_ERROR(CheckIndices(partitions, context.num_outputs(), "partitions"));
    const int64_t rows = partitions.elements();
    counts_.assign(size_t(context.num_outputs()), 0);
    for (int64_t i = 0; i < rows; ++i) ++counts_[size_t(IndexAt(partitions, i))];
    const Shape slice(data.shape().dims().subspan(rank));
    const size_t bytes = size_t(slice.elements()) * SizeOf(data.dtype());
    for (int i = 0; i < context.num_outputs(); ++i) {
      TUTTI_RETURN_IF_ERROR(SetShape(context, i, slice.WithInserted(0, counts_[size_t(i)])));
      counts_[size_t(i)] = 0;
    }
    if (bytes == 0) return absl::OkStatus();
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t part = IndexAt(partitions, i);
      std::memcpy(Bytes(context.output(int(part))) + size_t(counts_[size_t(part)]++) * bytes,
                  Bytes(data) + size_t(i) * bytes, bytes);
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> counts_;
};

absl::Status DynamicStitch(KernelContext& context, const DynamicKernel& kernel) {
  const int count = context.num_inputs() / 2;
  const Shape slice(context.input(count).shape().dims().subspan(context.input(0).shape().rank()));
  int64_t rows = 0;
  for (int m = 0; m < count; ++m) {
    const Tensor& indices = context.input(m);
    const Shape& data = context.input(count + m).shape();
    const int rank = indices.shape().rank();
    if (rank > data.rank() || Shape(data.dims().first(rank)) != indices.shape() ||
        Shape(data.dims().subspan(rank)) != slice) {
      return InvalidArgument("indices[{}] is {}, data[{}] is {}; expected data of {} + {}", m,
                             indices.shape().ToString(), m, data.ToString(),
                             indices.shape().ToString(), slice.ToString());
    }
    TUTTI_RETURN_IF_ERROR(CheckIndices(indices, INT64_MAX, "indices"));
    for (int64_t i = 0; i < indices.elements(); ++i) {
      rows = std::max(rows, IndexAt(indices, i) + 1);
    }
  }
  std::array<int64_t, kMaxRank + 1> dims{rows};
  std::copy(slice.dims().begin(), slice.dims().end(), dims.begin() + 1);
  std::string why;
  const auto shape =
      Shape::Make(std::span<const int64_t>(dims.data(), size_t(slice.rank()) + 1), &why);
  if (!shape) return OutOfRange("the largest index is {}: {}", rows - 1, why);
  TUTTI_RETURN_IF_ERROR(kernel.SetShape(context, 0, *shape));
  const size_t bytes = size_t(slice.elements()) * SizeOf(context.input(count).dtype());
  if (bytes == 0 || rows == 0) return absl::OkStatus();
  std::memset(context.output(0).raw(), 0, context.output(0).bytes());
  for (int m = 0; m < count; ++m) {
    for (int64_t i = 0; i < context.input(m).elements(); ++i) {
      std::memcpy(Bytes(context.output(0)) + size_t(IndexAt(context.input(m), i)) * bytes,
                  Bytes(context.input(count + m)) + size_t(i) * bytes, bytes);
    }
  }
  return absl::OkStatus();
}

class DynamicStitchGradKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& context) override {
    const Tensor& gradient = context.input(0);
    const int64_t rows = gradient.shape().dim(0);
    const auto slice = gradient.shape().dims().subspan(1);
    const size_t bytes = size_t(ProductOf(slice)) * SizeOf(gradient.dtype());
    // The number, over all indices, of the last one that names each row.
    owner_.assign(size_t(rows), -1);
    int64_t number = 0;
    for (int m = 1; m < context.num_inputs(); ++m) {
      TUTTI_RETURN_IF_ERROR(CheckIndices(context.input(m), rows, "indices"));
      for (int64_t i = 0; i < context.input(m).elements(); ++i) {
        owner_[size_t(IndexAt(context.input(m), i))] = number++;
      }
    }
    number = 0;
    for (int m = 1; m < context.num_inputs(); ++m) {
      const Tensor& indices = context.input(m);
      Shape shape = indices.shape();
      for (const int64_t dim : slice) shape = shape.WithInserted(shape.rank(), dim);
      TUTTI_RETURN_IF_ERROR(SetShape(context, m - 1, shape));
      std::byte* to = Bytes(context.output(m - 1));
      for (int64_t i = 0; i < indices.elements(); ++i, to += bytes, ++number) {
        const int64_t row = IndexAt(indices, i);
        if (bytes == 0) continue;
        if (owner_[size_t(row)] == number) {
          std::memcpy(to, Bytes(gradient) + size_t(row) * bytes, bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<int64_t> owner_;
};

}  // namespace

void RegisterPartitionRefKernels(KernelRegistry& registry) {
  AddKernel<UniqueKernel>(registry, "Unique", "ref");
  AddKernel<TopKKernel>(registry, "TopK", "ref");
  AddKernel<DynamicPartitionKernel>(registry, "DynamicPartition", "ref");
  AddDynamicKernel(registry, "DynamicStitch", "ref", DynamicStitch);
  AddKernel<DynamicStitchGradKernel>(registry, "DynamicStitchGrad", "ref");
}

}  // namespace tutti
