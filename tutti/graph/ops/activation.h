#pragma once

#include <string_view>

#include "tutti/graph/input.h"

// Activation functions, of floating-point values by element, and their gradient ops.
namespace tutti {

Output Relu(Input x, std::string_view name = "");   // max(x, 0)
Output Relu6(Input x, std::string_view name = "");  // min(max(x, 0), 6)
// x where it is positive, else alpha * x; alpha is not negative.
Output LeakyRelu(Input x, double alpha = 0.2, std::string_view name = "");
// x where it is positive, else alpha * (exp(x) - 1); alpha is not negative.
Output Elu(Input x, double alpha = 1.0, std::string_view name = "");
Output Sigmoid(Input x, std::string_view name = "");  // 1 / (1 + exp(-x))
Output Tanh(Input x, std::string_view name = "");
Output Softplus(Input x, std::string_view name = "");  // log(1 + exp(x))

struct GeluOptions {
  bool approximate = false;  // by tanh; else exactly, x * (1 + erf(x / sqrt(2))) / 2
};
Output Gelu(Input x, const GeluOptions& options = {}, std::string_view name = "");

// What autodiff builds: `gradient` times the derivative, at the function's result y or, where that
// does not tell, at its argument x. `gradient` has the shape of the other input. At NaN, Relu and
// Relu6 pass nothing on and LeakyRelu alpha * gradient, as in TensorFlow and JAX (PyTorch passes
// Relu's gradient on, and Relu6's in some elements); the others give NaN.
Output ReluGrad(Input gradient, Input y, std::string_view name = "");
Output Relu6Grad(Input gradient, Input y, std::string_view name = "");
Output LeakyReluGrad(Input gradient, Input y, double alpha, std::string_view name = "");
Output EluGrad(Input gradient, Input y, double alpha, std::string_view name = "");
Output SigmoidGrad(Input gradient, Input y, std::string_view name = "");
Output TanhGrad(Input gradient, Input y, std::string_view name = "");
Output SoftplusGrad(Input gradient, Input x, std::string_view name = "");
Output GeluGrad(Input gradient, Input x, const GeluOptions& options = {},
                std::string_view name = "");

}  // namespace tutti
