#include "tutti/collective/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/engine/engine_communicator.h"
#include "tutti/collective/engine/star_control.h"
#include "tutti/collective/job_links.h"
#include "tutti/collective/share_cores.h"
#include "tutti/collective/tuning/tuner.h"
#include "tutti/net/coordination/star.h"

namespace tutti::collective {
namespace {

constexpr double kMaxSeconds = 1e6;

// A rank that gives up waits so long for rank 0's verdict, which takes milliseconds.
constexpr auto kVerdictWait = std::chrono::seconds(2);
// One that cannot reach a peer first waits so long for that peer's own reason.
constexpr auto kPeersReason = std::chrono::milliseconds(500);

absl::Status CheckBootstrap(const Bootstrap& bootstrap) {
  if (bootstrap.size < 1 || bootstrap.size > kMaxRanks) {
    return InvalidArgument("bootstrap: size is {}, expected 1 to {}", bootstrap.size, kMaxRanks);
  }
  if (bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size) {
    return InvalidArgument("bootstrap: rank is {}, expected 0 to {}", bootstrap.rank,
                           bootstrap.size - 1);
  }
  if (bootstrap.generation < 0) {
    return InvalidArgument("bootstrap: generation is {}, expected 0 or more", bootstrap.generation);
  }
  const int given =
      !bootstrap.address.empty() + !bootstrap.file.empty() + !bootstrap.endpoints.empty();
  if (given != 1) {
    return InvalidArgument(
        "bootstrap: {} of address, file and endpoints are given; give exactly one", given);
  }
  if (!bootstrap.endpoints.empty() &&
      bootstrap.endpoints.size() != static_cast<size_t>(bootstrap.size)) {
    return InvalidArgument("bootstrap: there are {} endpoints for {} ranks",
                           bootstrap.endpoints.size(), bootstrap.size);
  }
  return absl::OkStatus();
}

// What must be the same on all ranks for them to choose alike and understand each other.
std::vector<std::string> Fingerprint(const CommunicatorOptions& options) {
  std::vector<std::string> lines = options.bootstrap.fingerprint;
  lines.push_back(fmt::format("size={}", options.bootstrap.size));
  lines.push_back(fmt::format("transport={}", options.transport));
  lines.push_back(fmt::format("tune={}", options.tune));
  lines.push_back(fmt::format("share_cores={}", options.share_cores));
  return lines;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    const CommunicatorOptions& options) {
  const Bootstrap& bootstrap = options.bootstrap;
  TUTTI_RETURN_IF_ERROR(CheckBootstrap(bootstrap));
  if (!(options.late_seconds > 0 && options.late_seconds <= kMaxSeconds)) {
    return InvalidArgument("late_seconds is {}, expected more than 0 and at most {}",
                           options.late_seconds, kMaxSeconds);
  }
  TUTTI_ASSIGN_OR_RETURN(
      auto star,
      net::Star::Connect(
          {.rank = bootstrap.rank,
           .size = bootstrap.size,
           .address = bootstrap.endpoints.empty() ? bootstrap.address : bootstrap.endpoints[0],
           .file = bootstrap.file,
           .job = bootstrap.job,
           .token = bootstrap.token,
           .generation = bootstrap.generation,
           .timeout_seconds = bootstrap.timeout_seconds,
           .silence_seconds = options.silence_seconds,
           .cancellation = bootstrap.cancellation,
           .fingerprint = Fingerprint(options)}));
  if (options.share_cores) TUTTI_RETURN_IF_ERROR(ShareCores(*star, bootstrap.rank));
  auto control = std::make_unique<StarControl>(std::move(star));
  // The others would only see that this rank left: they get the reason. It stays until rank 0 has
  // judged, because leaving before that would look like the cause.
  const auto give_up = [&](const absl::Status& why) {
    const auto judged = std::make_shared<std::promise<absl::Status>>();
    std::future<absl::Status> verdict = judged->get_future();
    control->star().OnFailure(
        [judged](int, const absl::Status& status) { judged->set_value(status); });
    const bool of_a_peer = absl::IsUnavailable(why) || absl::IsNotFound(why);
    if (!of_a_peer || verdict.wait_for(kPeersReason) != std::future_status::ready) {
      control->star().ReportFailure(
          WithPrefix(why, fmt::format("rank {} cannot join: ", bootstrap.rank)));
    }
    if (verdict.wait_for(kVerdictWait) != std::future_status::ready) return why;
    absl::Status first = verdict.get();
    const bool is_own = MessageOf(first).find(MessageOf(why)) != std::string::npos;
    return is_own ? why : first;
  };
  absl::StatusOr<JobLinks> opened = OpenLinks(options, control->star());
  if (!opened.ok()) return give_up(opened.status());
  JobLinks links = *std::move(opened);
  auto engine =
      std::make_unique<Engine>(std::move(links.transport), control.get(), options.late_seconds);
  if (!engine->start_status().ok()) return give_up(engine->start_status());
  Engine* const serving = engine.get();
  auto communicator = std::make_unique<EngineCommunicator>(
      std::move(engine), links.hosts, [](std::span<const int>, std::span<const int> hosts) {
        return std::make_unique<DefaultSelector>(ShapeOf(hosts));
      });
  control->Serve(serving);
  net::Star& links_star = control->star();
  communicator->SetControl(std::move(control));
  if (options.tune && bootstrap.size > 1) {
    TUTTI_ASSIGN_OR_RETURN(const LinkFigures figures, FiguresForAll(*communicator, links.hosts,
                                                                    options.transport, links_star));
    communicator->Choose([figures](std::span<const int>, std::span<const int> hosts) {
      return std::make_unique<TunedSelector>(figures, hosts);
    });
  }
  return communicator;
}

}  // namespace tutti::collective
