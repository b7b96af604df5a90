#pragma once

#include <functional>
#include <memory>

#include "tutti/device/kernel.h"

namespace tutti {

// Makes `inner`, a kernel whose node has the shape of its output 0 as the value of input
// `shape_input`, work where that value is known only when the node runs: then the node's shape
// function is asked again with the value, the output comes from the device's pool, and `inner` is
// prepared for it. Where the plan knows the shape it costs nothing.
std::unique_ptr<Kernel> WithRunTimeShape(std::unique_ptr<Kernel> inner, int shape_input);

}  // namespace tutti
