#include "tutti/runtime/step_id.h"

#include <random>

namespace tutti {

uint64_t MakeRandomId() {
  std::random_device device;
  uint64_t id = 0;
  while (id == 0) id = uint64_t(device()) << 32 | device();
  return id;
}

}  // namespace tutti
