#pragma once

#include <cstdint>

// The inner loops of softmax and its losses on float32, with Highway, for the best vectors of this
// machine. All work on `rows` rows of `classes` elements that follow each other; results may stand
// where inputs stood.
namespace tutti {

void SoftmaxRows(const float* x, int64_t rows, int64_t classes, float* y);
void LogSoftmaxRows(const float* x, int64_t rows, int64_t classes, float* y);

// dx = y * (dy - sum(y * dy)).
void SoftmaxGradRows(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx);
// dx = dy - exp(y) * sum(dy).
void LogSoftmaxGradRows(const float* y, const float* dy, int64_t rows, int64_t classes, float* dx);

// p = Softmax(x), and the logarithm of its denominator for each row: log(sum(exp(x))).
void SoftmaxWithLogSumRows(const float* x, int64_t rows, int64_t classes, float* p, float* log_sum);

// loss = -sum(labels * log p) and backprop = p * sum(labels) - labels.
void SoftmaxCrossEntropyRows(const float* x, const float* labels, int64_t rows, int64_t classes,
                             float* loss, float* backprop);

// By element: max(x, 0) - x * z + log1p(exp(-|x|)).
void SigmoidCrossEntropyElements(const float* x, const float* z, int64_t count, float* loss);

}  // namespace tutti
