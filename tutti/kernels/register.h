#pragma once

namespace tutti {

// Makes the kernels of CPU devices, and the references beside them, known. A binary calls it once
// before its first Session; more calls do nothing. Thread-safe.
void RegisterCpuKernels();

}  // namespace tutti
