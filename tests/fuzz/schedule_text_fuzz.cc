// Any text gives a schedule or a Status; a schedule that was read is written as a text that gives
// it again, and the verifier has an answer to it.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/collective/schedule/schedule.h"
#include "tutti/collective/schedule/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::collective;
  const auto schedule = ParseSchedule({reinterpret_cast<const char*>(data), size});
  if (!schedule.ok()) return 0;
  const auto again = ParseSchedule(ToText(*schedule));
  TUTTI_CHECK(again.ok() && *again == *schedule);
  // Large memories take their time, and show nothing that small ones do not.
  if (int64_t{schedule->ranks} * schedule->pieces() > 4096) return 0;
  if (Verify(*schedule).ok()) CountWork(*schedule);
  return 0;
}
