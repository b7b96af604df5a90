#pragma once

#include <cstdint>

#include "tutti/collective/engine/control.h"
#include "tutti/collective/operation/open_operation.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// Warns about operations that have waited long for ranks that are alive, by name, again and again.
// Under the engine's lock.
class LateWarning {
 public:
  // `control` may be null. `late_nanos` between two warnings; 0: none.
  LateWarning(const net::Transport* transport, const Control* control, int64_t late_nanos)
      : transport_(transport), control_(control), late_nanos_(late_nanos) {}

  void Look(OpenOperation& operation, int64_t now) const;

 private:
  // Ranks that have not come this far; else those whose messages are missing.
  std::vector<int> LateRanks(const OpenOperation& operation) const;

  const net::Transport* const transport_;
  const Control* const control_;
  const int64_t late_nanos_;
};

}  // namespace tutti::collective
