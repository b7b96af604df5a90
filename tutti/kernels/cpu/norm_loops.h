#pragma once

#include <cstdint>

// The inner loops of normalisation on float32, with Highway, for the best vectors of this machine.
// Matrices are [rows, columns], dense. Where it says so, a result may stand where an input stood.
namespace tutti {

// Normalises each row: y (may be x), mean and rstd by row.
void LayerNormRows(const float* x, const float* scale, const float* offset, float epsilon,
                   int64_t rows, int64_t columns, float* y, float* mean, float* rstd);

// The gradient of LayerNormRows. dx may be dy or x. dscale and doffset get the sums over these rows
// added.
void LayerNormGradRows(const float* dy, const float* x, const float* scale, const float* mean,
                       const float* rstd, int64_t rows, int64_t columns, float* dx, float* dscale,
                       float* doffset);

// By column: the mean over these rows, and the sum of squared distances from it.
void ColumnMoments(const float* x, int64_t rows, int64_t columns, float* mean, float* squares);

// y = x * factor + shift, with one factor and shift for each column. y may be x.
void ScaleColumns(const float* x, const float* factor, const float* shift, int64_t rows,
                  int64_t columns, float* y);

// By column, sums over these rows: of dy, and of dy * (x - mean).
void ColumnGradientSums(const float* dy, const float* x, const float* mean, int64_t rows,
                        int64_t columns, float* sum, float* centred_sum);

// dx = a * dy + b * x + c, with one a, b and c for each column. dx may be dy or x.
void CombineColumns(const float* dy, const float* x, const float* a, const float* b, const float* c,
                    int64_t rows, int64_t columns, float* dx);

}  // namespace tutti
