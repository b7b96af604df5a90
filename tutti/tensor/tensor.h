#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tutti/tensor/buffer.h"
#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"

namespace tutti {

// A dense, row-major, n-dimensional array: element type, shape, and a reference to its bytes.
// Copying a Tensor copies the reference, so copies and views see each other's writes; Clone()
// copies the bytes. A default-constructed Tensor is invalid (kInvalid, no memory). Distinct Tensors
// may be used from distinct threads; guarding shared bytes is up to the user.
//
//   Tensor t = Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
//   float sum = 0;
//   for (float v : t.values<float>()) sum += v;
class Tensor {
 public:
  Tensor() = default;

  // Not initialised. Throws Error when the shape is not fully known or the memory cannot be had.
  Tensor(DType dtype, const Shape& shape);

  // A view of `buffer` from byte `offset` on. REQUIRES: the bytes suffice (true for blocked layouts
  // that need more bytes than elements, too).
  Tensor(DType dtype, const Shape& shape, BufferRef buffer, size_t offset = 0);

  static Tensor Zeros(DType dtype, const Shape& shape);

  template <typename T>
  static Tensor Scalar(T value) {
    Tensor t(DTypeOf<T>(), Shape{});
    *t.data<T>() = value;
    return t;
  }
  // Throws Error unless there are as many values as elements.
  template <typename T>
  static Tensor Of(const Shape& shape, std::initializer_list<T> values) {
    return FromBytes(DTypeOf<T>(), shape, values.begin(), values.size());
  }
  template <typename T>
  static Tensor Of(const Shape& shape, std::span<const T> values) {
    return FromBytes(DTypeOf<T>(), shape, values.data(), values.size());
  }
  template <typename T>
  static Tensor Vector(std::initializer_list<T> values) {
    return Of<T>(Shape{int64_t(values.size())}, values);
  }

  bool valid() const { return dtype_ != DType::kInvalid; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t elements() const { return shape_.elements(); }
  size_t bytes() const { return size_t(elements()) * SizeOf(dtype_); }
  const BufferRef& buffer() const { return buffer_; }

  void* raw() { return data_; }
  const void* raw() const { return data_; }

  // REQUIRES: T is the element type; values() and at() throw Error otherwise, data() does not look.
  template <typename T>
  T* data() {
    return static_cast<T*>(data_);
  }
  template <typename T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }
  template <typename T>
  std::span<T> values() {
    RequireType(DTypeOf<T>());
    return {data<T>(), size_t(elements())};
  }
  template <typename T>
  std::span<const T> values() const {
    RequireType(DTypeOf<T>());
    return {data<T>(), size_t(elements())};
  }
  // The only element. Throws Error unless there is exactly one.
  template <typename T>
  T scalar() const {
    RequireType(DTypeOf<T>());
    RequireOneElement();
    return *data<T>();
  }

  // Views, no bytes copied. Each throws Error when the argument does not fit.
  Tensor Reshape(const Shape& shape) const;       // as many elements
  Tensor Rows(int64_t begin, int64_t end) const;  // [begin, end) of the first dimension

  Tensor Clone() const;

  // "float32 [2, 2] {1, 2, 3, 4}", long ones shortened in the middle.
  std::string ToString(int64_t most_values = 16) const;

  // Same type, shape and bytes. (NaN equals itself here; 0.0 and -0.0 differ.)
  bool BitwiseEquals(const Tensor& other) const;

 private:
  static Tensor FromBytes(DType dtype, const Shape& shape, const void* values, size_t count);
  void RequireType(DType dtype) const;
  void RequireOneElement() const;

  DType dtype_ = DType::kInvalid;
  Shape shape_;
  BufferRef buffer_;
  void* data_ = nullptr;
};

// Prints ToString() and a newline on stdout.
void Print(const Tensor& tensor);

}  // namespace tutti
