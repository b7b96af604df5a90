// Any bytes give a tensor or an Error; a tensor that was read is written as bytes that give it
// again.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/tensor/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::Tensor tensor;
  try {
    tensor = tutti::ParseNpy({reinterpret_cast<const char*>(data), size});
  } catch (const tutti::Error&) {
    return 0;
  }
  TUTTI_CHECK(tutti::ParseNpy(tutti::NpyBytes(tensor)).BitwiseEquals(tensor));
  return 0;
}
