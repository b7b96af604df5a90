// libFuzzer over the IDX parser: whatever the bytes, a tensor or an Error.
#include <cstddef>
#include <cstdint>

#include "tutti/base/error.h"
#include "tutti/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    tutti::ParseIdx({data, size}, "fuzz");
  } catch (const tutti::Error&) {
  }
  return 0;
}
