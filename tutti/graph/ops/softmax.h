#pragma once

#include <cstdint>
#include <string_view>

#include "tutti/graph/input.h"

// Softmax and the losses of classification. Classes are the last axis; all axes before it are rows.
namespace tutti {

Output Softmax(Input logits, std::string_view name = "");
// log(Softmax(logits)) without loss of precision.
Output LogSoftmax(Input logits, std::string_view name = "");

// The gradients of both by their results: `y` is what the op gave, `dy` the gradient that arrives.
Output SoftmaxGrad(Input y, Input dy, std::string_view name = "");
Output LogSoftmaxGrad(Input y, Input dy, std::string_view name = "");

// The result of a cross-entropy: a loss for each row, and d(loss)/d(logits), which has the shape of
// the logits and from which the gradient is computed.
struct CrossEntropy {
  Output loss;
  Output backprop;
};

// -sum(labels * LogSoftmax(logits)) by row. `labels` has the shape and dtype of `logits`; its rows
// are weights of the classes, mostly a probability distribution.
CrossEntropy SoftmaxCrossEntropy(Input logits, Input labels, std::string_view name = "");

// -LogSoftmax(logits)[label] by row: logits [..., classes], labels int32 or int64 [...], each in
// [0, classes).
CrossEntropy SparseSoftmaxCrossEntropy(Input logits, Input labels, std::string_view name = "");

// The cross-entropy of independent yes-no questions, by element: logits of any shape against labels
// in [0, 1] of the same shape. Stable for large logits.
Output SigmoidCrossEntropy(Input logits, Input labels, std::string_view name = "");

// sum(x * x) / 2, a scalar.
Output L2Loss(Input x, std::string_view name = "");

// Is the target's prediction among the k largest of its row? predictions [n, classes], targets
// int32 or int64 [n]; bool [n]. Classes that tie with the target do not push it out; a target whose
// prediction is not finite is never in.
Output InTopK(Input predictions, Input targets, int64_t k, std::string_view name = "");

}  // namespace tutti
