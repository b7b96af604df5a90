#include "tutti/nn/activation.h"

#include "tutti/graph/ops/activation.h"

namespace tutti::nn {

Output Activate(Input x, Activation activation, std::string_view name) {
  switch (activation) {
    case Activation::kLinear:
      break;
    case Activation::kRelu:
      return Relu(x, name);
    case Activation::kRelu6:
      return Relu6(x, name);
    case Activation::kLeakyRelu:
      return LeakyRelu(x, 0.2, name);
    case Activation::kElu:
      return Elu(x, 1.0, name);
    case Activation::kGelu:
      return Gelu(x, {}, name);
    case Activation::kSigmoid:
      return Sigmoid(x, name);
    case Activation::kTanh:
      return Tanh(x, name);
    case Activation::kSoftplus:
      return Softplus(x, name);
  }
  return x.output();
}

}  // namespace tutti::nn
