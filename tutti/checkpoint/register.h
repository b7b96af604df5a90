#pragma once

namespace tutti {

// Registers the kernels of TakeSnapshot, SaveShard and RestoreShard, once. Must be called before
// one of these ops runs.
void RegisterCheckpointKernels();

}  // namespace tutti
