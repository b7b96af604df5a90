#pragma once

#include "tutti/graph/op_def.h"

// The table of contents of all op families. Each function lies in the family's own .cc file.
namespace tutti {

void RegisterAllOps(OpRegistry& registry);

void RegisterSourceOps(OpRegistry& registry);       // source.cc: Constant, Placeholder, Arg
void RegisterElementwiseOps(OpRegistry& registry);  // elementwise.cc: arithmetic, comparison and
                                                    // logic by element; Select, Cast, Clip
void RegisterActivationOps(OpRegistry& registry);   // activation.cc: Relu, Gelu, Sigmoid, Tanh, ...
void RegisterShapeOps(
    OpRegistry& registry);  // shape.cc: Identity, Shape, Reshape, ExpandDims, Fill, Range, ...
void RegisterArrangeOps(
    OpRegistry& registry);  // arrange.cc: Transpose, Concat, Split, Slice, Pad, Tile, ...
void RegisterSliceOps(OpRegistry& registry);   // slice.cc: Slice, StridedSlice
void RegisterGatherOps(OpRegistry& registry);  // gather.cc: Gather, ScatterNd, OneHot,
                                               // UnsortedSegmentSum, ...
void RegisterPartitionOps(
    OpRegistry& registry);  // partition.cc: Unique, TopK, DynamicPartition, DynamicStitch
void RegisterRowMessageOps(OpRegistry& registry);  // row_messages.cc: PackRows, MergeRows
void RegisterReduceOps(
    OpRegistry& registry);  // reduce.cc: Sum, Mean, Max, ArgMax, Cumsum, LogSumExp, ...
void RegisterRandomOps(OpRegistry& registry);  // random.cc: RandomUniform, RandomNormal,
                                               // TruncatedNormal, Shuffle, Dropout
void RegisterMatMulOps(OpRegistry& registry);  // matmul.cc: MatMul, BatchMatMul
void RegisterLinalgOps(
    OpRegistry& registry);  // linalg.cc: MatrixInverse, MatrixDeterminant, Cholesky, MatrixSolve
void RegisterSoftmaxOps(
    OpRegistry& registry);  // softmax.cc: Softmax, LogSoftmax, the cross-entropies, L2Loss, InTopK
void RegisterConvOps(
    OpRegistry& registry);  // conv.cc: BiasAdd, Conv2D, DepthwiseConv2D, Conv2DTranspose
void RegisterPoolOps(OpRegistry& registry);  // pool.cc: MaxPool, AvgPool, GlobalAvgPool
void RegisterNormOps(OpRegistry& registry);  // norm.cc: BatchNorm, LayerNorm
void RegisterStateOps(
    OpRegistry& registry);  // state.cc: Variable, Assign, IsInitialized, ScatterAdd, ...
void RegisterUpdateOps(OpRegistry& registry);  // update.cc: ApplyGradientDescent, ApplyAdam, ...
void RegisterCheckpointOps(
    OpRegistry& registry);  // checkpoint.cc: TakeSnapshot, SaveShard, RestoreShard
void RegisterCollectiveOps(OpRegistry& registry);  // collective.cc: AllReduce, Broadcast, AllGather
void RegisterQueueOps(
    OpRegistry& registry);  // queue.cc: FIFOQueue, RandomShuffleQueue, Enqueue, Dequeue, ...
void RegisterSyncOps(OpRegistry& registry);  // sync.cc: Mutex, Barrier, Accumulator, Gate, Clock
void RegisterControlOps(
    OpRegistry& registry);  // control.cc: NoOp, Group, Assert, CheckNumerics, Print
void RegisterControlFlowOps(OpRegistry& registry);  // control_flow.cc: If, While
void RegisterFusedElementwiseOp(
    OpRegistry& registry);  // elementwise_program.cc: what FuseElementwise makes
void RegisterTransferOps(OpRegistry& registry);  // transfer.cc: Send, Recv

}  // namespace tutti
