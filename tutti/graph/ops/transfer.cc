// Send and Recv: how a value crosses from one device to another. Partitioning makes them; users
// never do.
#include "tutti/graph/ops/register.h"

namespace tutti {

void RegisterTransferOps(OpRegistry& registry) {
  registry.Add({.name = "Send",
                .inputs = {"value"},
                .attrs = {{"key", AttrType::kString}},
                .infer = [](InferContext&) { return absl::OkStatus(); },
                .stateful = true,
                .transfer = true,
                .keeps_inputs = true,
                .internal = true});
  registry.Add({.name = "Recv",
                .attrs = {{"key", AttrType::kString},
                          {"dtype", AttrType::kDType},
                          {"shape", AttrType::kShape}},
                .infer =
                    [](InferContext& c) {
                      c.SetOutput(0, c.attr<DType>("dtype"), c.attr<Shape>("shape"));
                      return absl::OkStatus();
                    },
                .stateful = true,
                .async = true,
                .transfer = true,
                .internal = true,
                .provides_outputs = true});
}

}  // namespace tutti
