#pragma once

#include <cstdint>

// The inner loops of float32 reductions, with Highway, for the best vectors of this machine.
namespace tutti {

enum class ReduceOp { kSum, kSumOfSquares, kProd, kMax, kMin };

// What reducing nothing gives.
float ReduceStart(ReduceOp op);

// Two partial results as one.
double CombineReduced(ReduceOp op, double a, double b);

// Elements of a run that are reduced in one go. Longer runs are cut into blocks of this size, whose
// results are combined in order and in double: so the result depends neither on the number of cores
// nor much on the length. With 4096 no lane adds up more than 64 numbers in float on AVX2.
inline constexpr int64_t kReduceBlock = 4096;

// results[i] = the reduction of x[i * stride .. i * stride + length), for i < count.
void ReduceRuns(ReduceOp op, const float* x, int64_t stride, int64_t length, int64_t count,
                float* results);
// The same for one run, before it is rounded.
double ReduceRun(ReduceOp op, const float* x, int64_t length);

// results[j] = the reduction over i < rows of x[i * stride + j], for j < columns; together with
// what stands in results if `accumulate`.
void ReduceColumns(ReduceOp op, const float* x, int64_t stride, int64_t rows, int64_t columns,
                   bool accumulate, float* results);

// Is every one of x[0 .. length) finite?
bool AllFiniteRun(const float* x, int64_t length);

// Where in x[i * stride ..] the first of the largest (smallest) elements stands, for i < count; a
// NaN counts as the extreme. REQUIRES: length > 0.
void ArgExtremeRuns(bool largest, const float* x, int64_t stride, int64_t length, int64_t count,
                    int64_t* positions);

// results[i] = log(sum(exp(x[i * length ..]))).
void LogSumExpRuns(const float* x, int64_t length, int64_t count, float* results);

}  // namespace tutti
