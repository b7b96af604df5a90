#include "tutti/cluster/environment/pmix_client.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "tutti/base/cancellation.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // between looks for a cancellation

// Versions of the server's address, as PMIx 2 to 4 name it.
constexpr const char* kServers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
                                    "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"};

}  // namespace

absl::StatusOr<Pmix> FindPmix(const LaunchEnvironment& environment, const Lookup& lookup) {
  const auto text = [&](const char* name) {
    const char* const value = lookup(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string wanted = text("TUTTI_PMIX");
  if (!wanted.empty() && wanted != "on" && wanted != "off") {
    return InvalidArgument("TUTTI_PMIX is \"{}\"; expected on or off", wanted);
  }
  if (environment.kind != LaunchKind::kOpenMpi && environment.kind != LaunchKind::kSlurm) {
    return Pmix{Pmix::State::kNone, fmt::format("{} has no PMIx", NameOf(environment.kind))};
  }
  bool served = false;
  for (const char* server : kServers) served = served || lookup(server) != nullptr;
  if (text("PMIX_NAMESPACE").empty() || text("PMIX_RANK").empty() || !served) {
    return Pmix{Pmix::State::kNone, environment.kind == LaunchKind::kSlurm
                                        ? "srun was not given --mpi=pmix"
                                        : "mpirun offers no PMIx"};
  }
  if (wanted == "off") return Pmix{Pmix::State::kOff, "TUTTI_PMIX is off"};
  if (text("PMIX_RANK") != std::to_string(environment.rank)) {
    return InvalidArgument(
        "PMIX_RANK is {}, but {} says {}: start the program by one launcher, or set TUTTI_PMIX=off",
        text("PMIX_RANK"), NameOf(environment.kind), environment.found);
  }
  const absl::Status loaded = pmix::Load();
  if (!loaded.ok()) return Pmix{Pmix::State::kMissing, std::string(MessageOf(loaded))};
  return Pmix{Pmix::State::kUsed, ""};
}

absl::StatusOr<Pmix> FindPmix(const LaunchEnvironment& environment) {
  return FindPmix(environment, [](const char* name) { return std::getenv(name); });
}

// The library waits for the others as long as it likes. It does so on a thread of its own, which is
// left alone when the time is over: the process ends then.
absl::StatusOr<std::string> TellByPmix(int rank, const std::string& tell, int64_t deadline_nanos,
                                       const Cancellation* cancellation) {
  using Told = absl::StatusOr<std::string>;
  const auto promise = std::make_shared<std::promise<Told>>();
  std::future<Told> future = promise->get_future();
  TUTTI_ASSIGN_OR_RETURN(std::thread thread,
                         StartThread("the thread that waits for PMIx", [promise, rank, tell] {
                           promise->set_value(pmix::Tell(rank, tell));
                         }));
  while (future.wait_for(kLook) != std::future_status::ready) {
    const bool cancelled = cancellation != nullptr && cancellation->cancelled();
    if (!cancelled && NowNanos() < deadline_nanos) continue;
    thread.detach();
    if (cancelled) return cancellation->status();
    return DeadlineExceeded(
        "PMIx: not all processes of the job have come, or its server is silent");
  }
  thread.join();
  return future.get();
}

}  // namespace tutti
