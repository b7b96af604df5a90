#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/collective/communicator.h"
#include "tutti/tensor/dtype.h"

// The arithmetic of collectives, in Highway. float16 and bfloat16 are summed in float32 and rounded
// once. Every function gives the same bits on every rank for the same inputs in the same order,
// whatever the alignment and the split into calls. Types: float16, bfloat16, float32, float64,
// int32, int64 (integers wrap; their mean truncates towards zero).
namespace tutti::collective {

bool CanReduce(DType dtype);

// target[i] = target[i] + source[i]. kMean sums; Scale divides at the end.
void ReduceInto(Reduction reduction, DType dtype, void* target, const void* source, int64_t count);

// For every i: the sum over sources[0..n) in this order, times `scale` where that is not 1 (mean),
// stored into every target. Targets may be sources, element for element; otherwise they do not
// overlap. One pass: 2n streams. 16-bit types are rounded once, at the end. Integers are divided by
// the whole number nearest to 1 / scale.
// REQUIRES: n_sources > 0, CanReduce(dtype).
void ReduceToAll(Reduction reduction, DType dtype, const void* const* sources, int n_sources,
                 void* const* targets, int n_targets, int64_t count, double scale);

// data[i] = data[i] * scale, as the mean needs it; integers as above.
void Scale(DType dtype, void* data, int64_t count, double scale);

// float32 to and from what travels. Round to nearest even.
void Pack(Wire wire, const float* source, void* packed, int64_t count);
void Unpack(Wire wire, const void* packed, float* target, int64_t count);
// target[i] = target[i] + unpacked[i].
void UnpackReduce(Reduction reduction, Wire wire, const void* packed, float* target, int64_t count);

}  // namespace tutti::collective
