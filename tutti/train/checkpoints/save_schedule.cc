#include "tutti/train/checkpoints/save_schedule.h"

#include <fmt/format.h>

#include <charconv>

#include "tutti/base/checked.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

constexpr int64_t kNanos = 1'000'000'000;

bool Parse(std::string_view text, int64_t* steps, int64_t* nanos) {
  const bool seconds = text.ends_with('s');
  if (seconds) text.remove_suffix(1);
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end || number < (seconds ? 1 : 0)) return false;
  if (!seconds) {
    *steps = number;
    return true;
  }
  const auto total = CheckedMul(number, kNanos);
  *nanos = total.value_or(0);
  return total.has_value();
}

}  // namespace

std::string SaveSchedule::Check(std::string_view text) {
  int64_t steps = 0, nanos = 0;
  if (Parse(text, &steps, &nanos)) return "";
  return "steps, as in 500, or seconds, as in 60s, or 0 for a checkpoint at the end only";
}

SaveSchedule::SaveSchedule(std::string_view text) {
  int64_t steps = 0;
  if (Parse(text, &steps, &nanos_)) {
    steps_ = EverySteps(steps);
    return;
  }
  ThrowInvalidArgument(fmt::format("save_every is \"{}\"; expected {}", text, Check(text)));
}

}  // namespace tutti
