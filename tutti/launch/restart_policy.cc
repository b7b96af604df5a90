#include "tutti/launch/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {

double RestartPolicy::PauseSeconds() const {
  return std::min(options_.longest_pause,
                  options_.first_pause * std::ldexp(1.0, std::min(used_, 30)));
}

RestartPolicy::Decision RestartPolicy::Decide(std::span<const Loss> losses, const Loss& cause) {
  Decision decision;
  const auto from_program = std::find_if(losses.begin(), losses.end(),
                                         [](const Loss& loss) { return loss.code < kPeerLost; });
  if (options_.restarts == 0 || from_program != losses.end()) return decision;
  int& lives = short_lives_[cause.task];
  lives = cause.lived_seconds < options_.short_life ? lives + 1 : 0;
  if (lives >= options_.crashes) {
    decision.reason = fmt::format(
        "it has ended within {:g} s of its start {} times in a row, so it is not started again",
        options_.short_life, lives);
    return decision;
  }
  if (used_ >= options_.restarts) {
    decision.reason =
        used_ == 1 ? "1 restart was made" : fmt::format("{} restarts were made", used_);
    return decision;
  }
  ++used_;
  const bool peers_lost = std::any_of(losses.begin(), losses.end(),
                                      [](const Loss& loss) { return loss.code == kPeerLost; });
  decision.kind = peers_lost && losses.size() > 1 ? Decision::Kind::kJob : Decision::Kind::kTasks;
  if (decision.kind == Decision::Kind::kTasks) {
    for (const Loss& loss : losses) decision.tasks.push_back(loss.task);
  }
  return decision;
}

}  // namespace tutti
