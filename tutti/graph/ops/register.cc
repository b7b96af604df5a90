#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterAllOps(OpRegistry& registry) {
  RegisterSourceOps(registry);
  RegisterControlOps(registry);
  RegisterMatMulOps(registry);
  RegisterStateOps(registry);
}

}  // namespace tutti
