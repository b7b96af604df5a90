#include "tutti/tensor/tensor.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "tutti/base/checked.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"

namespace tutti {

Tensor::Tensor(DType dtype, const Shape& shape) : dtype_(dtype), shape_(shape) {
  if (dtype == DType::kInvalid) ThrowInvalidArgument("a tensor cannot have the dtype \"invalid\"");
  if (!shape.IsFullyKnown()) {
    ThrowInvalidArgument(
        fmt::format("a tensor needs a fully known shape, got {}", shape.ToString()));
  }
  const auto bytes = CheckedMul(shape.elements(), int64_t(SizeOf(dtype)));
  if (bytes) buffer_ = AllocateBuffer(size_t(*bytes));
  if (!buffer_) {
    throw Error(Code::kResourceExhausted, fmt::format("not enough memory for a tensor of {} {}",
                                                      NameOf(dtype), shape.ToString()));
  }
  data_ = buffer_->data();
}

Tensor::Tensor(DType dtype, const Shape& shape, BufferRef buffer, size_t offset)
    : dtype_(dtype), shape_(shape), buffer_(std::move(buffer)) {
  data_ = static_cast<std::byte*>(buffer_->data()) + offset;
}

Tensor Tensor::Zeros(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  std::memset(tensor.raw(), 0, tensor.bytes());
  return tensor;
}

Tensor Tensor::FromBytes(DType dtype, const Shape& shape, const void* values, size_t count) {
  if (shape.elements() != int64_t(count)) {
    ThrowInvalidArgument(
        fmt::format("{} values given for a tensor of shape {}, which has {} elements", count,
                    shape.ToString(), shape.elements()));
  }
  Tensor tensor(dtype, shape);
  if (count > 0) std::memcpy(tensor.raw(), values, tensor.bytes());
  return tensor;
}

Tensor Tensor::Reshape(const Shape& shape) const {
  if (shape.elements() != elements()) {
    ThrowInvalidArgument(
        fmt::format("cannot view a tensor of shape {} as {}: {} elements against {}",
                    shape_.ToString(), shape.ToString(), elements(), shape.elements()));
  }
  Tensor view = *this;
  view.shape_ = shape;
  return view;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  if (shape_.rank() < 1 || begin < 0 || begin > end || end > shape_.dim(0)) {
    ThrowInvalidArgument(fmt::format("rows [{}, {}) of a tensor of shape {} do not exist", begin,
                                     end, shape_.ToString()));
  }
  Tensor view = *this;
  const int64_t row_bytes = shape_.dim(0) == 0 ? 0 : int64_t(bytes()) / shape_.dim(0);
  view.shape_ = shape_.WithDim(0, end - begin);
  view.data_ = static_cast<std::byte*>(data_) + begin * row_bytes;
  return view;
}

Tensor Tensor::Clone() const {
  if (!valid()) return {};
  Tensor copy(dtype_, shape_);
  std::memcpy(copy.raw(), data_, bytes());
  return copy;
}

bool Tensor::BitwiseEquals(const Tensor& other) const {
  if (dtype_ != other.dtype_ || !(shape_ == other.shape_)) return false;
  return !valid() || bytes() == 0 || std::memcmp(data_, other.data_, bytes()) == 0;
}

void Tensor::RequireType(DType dtype) const {
  if (dtype == dtype_) return;
  ThrowInvalidArgument(fmt::format("the tensor is {} {}; its values cannot be read as {}",
                                   NameOf(dtype_), shape_.ToString(), NameOf(dtype)));
}

void Tensor::RequireOneElement() const {
  if (elements() == 1) return;
  ThrowInvalidArgument(fmt::format("a tensor of shape {} has {} elements; scalar() needs one",
                                   shape_.ToString(), elements()));
}

std::string Tensor::ToString(int64_t most_values) const {
  if (!valid()) return "invalid tensor";
  std::string text = fmt::format("{} {} {{", NameOf(dtype_), shape_.ToString());
  const int64_t count = elements();
  const bool shorten = count > most_values;
  const int64_t head = shorten ? most_values / 2 : count;
  VisitDType(dtype_, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = data<T>();
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) text += ", ";
      if (shorten && i == head) {
        text += "..., ";
        i = count - (most_values - head);
      }
      if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
        text += fmt::format("{:g}", float(values[i]));
      } else if constexpr (std::is_floating_point_v<T>) {
        text += fmt::format("{:g}", values[i]);
      } else if constexpr (std::is_same_v<T, bool>) {
        text += values[i] ? "true" : "false";
      } else {
        text += fmt::format("{}", int64_t(values[i]) < 0 && std::is_unsigned_v<T>
                                      ? fmt::format("{}", uint64_t(values[i]))
                                      : fmt::format("{}", int64_t(values[i])));
      }
    }
  });
  return text + "}";
}

void Print(const Tensor& tensor) { std::puts(tensor.ToString().c_str()); }

}  // namespace tutti
