#pragma once

namespace tutti {

// Makes the kernels of TakeSnapshot, SaveShard and RestoreShard known, once. Whoever runs these ops
// calls it before.
void RegisterCheckpointKernels();

}  // namespace tutti
