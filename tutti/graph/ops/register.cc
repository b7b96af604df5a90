#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterAllOps(OpRegistry& registry) {
  RegisterSourceOps(registry);
  RegisterElementwiseOps(registry);
  RegisterActivationOps(registry);
  RegisterShapeOps(registry);
  RegisterArrangeOps(registry);
  RegisterSliceOps(registry);
  RegisterGatherOps(registry);
  RegisterPartitionOps(registry);
  RegisterRowMessageOps(registry);
  RegisterReduceOps(registry);
  RegisterRandomOps(registry);
  RegisterMatMulOps(registry);
  RegisterLinalgOps(registry);
  RegisterSoftmaxOps(registry);
  RegisterConvOps(registry);
  RegisterPoolOps(registry);
  RegisterNormOps(registry);
  RegisterStateOps(registry);
  RegisterUpdateOps(registry);
  RegisterCheckpointOps(registry);
  RegisterQueueOps(registry);
  RegisterSyncOps(registry);
  RegisterCollectiveOps(registry);
  RegisterControlOps(registry);
  RegisterFusedElementwiseOp(registry);
  RegisterTransferOps(registry);
}

}  // namespace tutti
