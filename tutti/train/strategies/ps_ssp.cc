// Stale-synchronous: ps-async, whose workers may not drift apart by more than S steps. What that
// adds to the graph is in ps_async.cc.
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/join_servers.h"

namespace tutti {

StrategyDef PsSspStrategyDef() {
  return {.name = "ps-ssp",
          .summary = "as ps-async, no worker more than S steps ahead of the slowest",
          .argument = {.syntax = "S",
                       .expected =
                           [](std::string_view text) {
                             return WholeNumber(text, 0) >= 0 ? "" : "S steps, 0 or more";
                           }},
          .others = {{"ps", ServeVariables}},
          .flags = AsyncFlags(),
          .make = [](const Launch& launch) {
            AsyncOptions options = AsyncOptionsOf(launch);
            options.most_lead = WholeNumber(launch.argument(), 0);
            return MakeAsyncStrategy(JoinServers(launch, "ps-ssp"), options);
          }};
}

}  // namespace tutti
