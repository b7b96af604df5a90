#pragma once

#include <concepts>
#include <source_location>

#include "tutti/graph/graph.h"

namespace tutti {

// What op functions take: an Output, or a literal number or Tensor that becomes a Constant. It
// remembers the source line of the call, so that errors can show it; operators work too: `x
// * 2.0f`.
//   Mul(x, 0.5f);  MatMul(x, w);  Add(x, Tensor::Of<float>({2}, {1, 2}));
class Input {
 public:
  Input(Output output,
        std::source_location where = std::source_location::current())  // NOLINT: implicit
      : output_(output), where_(where) {}
  template <typename T>
    requires std::integral<T> || std::floating_point<T>
  Input(T value, std::source_location where = std::source_location::current())  // NOLINT: implicit
      : literal_(Tensor::Scalar<T>(value)), is_number_(true), where_(where) {}
  Input(Tensor value,
        std::source_location where = std::source_location::current())  // NOLINT: implicit
      : literal_(std::move(value)), where_(where) {}

  bool is_literal() const { return output_.node == nullptr; }
  bool is_number() const {
    return is_number_;
  }  // a C++ number; OpBuilder converts it to the dtype of the op's first Output
  Output output() const { return output_; }
  const Tensor& literal() const { return literal_; }
  const std::source_location& where() const { return where_; }

 private:
  Output output_;
  Tensor literal_;
  bool is_number_ = false;
  std::source_location where_;
};

}  // namespace tutti
