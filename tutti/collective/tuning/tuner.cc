#include "tutti/collective/tuning/tuner.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/tuning/cost.h"
#include "tutti/topology/quantity.h"

namespace tutti::collective {
namespace {

// What a rank of one host sends without the receiver's help.
constexpr int64_t kInsideRing = 8 << 10;
// Replaying takes time with the square of the ranks; above this the rules decide.
constexpr int kMostRanks = 32;
// Predictions closer than this are equal: the earlier algorithm in the list is taken, so that
// rounding never decides.
constexpr double kTie = 1.02;

// What tells the place of a rank from all others: the running system, its name, its address in the
// job's network (namespaces of one host have their own), and the cores it may use.
std::string PlaceOf(const net::Star& star) {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = "";
  ::gethostname(name, sizeof(name) - 1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  return fmt::format("{} {} {} {}", boot, name, star.own_address(), CPU_COUNT(&cores));
}

// Where rank 0 keeps the figures; nowhere if it has no home.
std::filesystem::path CacheFile(std::span<const std::string> places, std::string_view transport) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  return folder / "tutti" / CacheName(TUTTI_VERSION, places, transport);
}

std::string ReadCache(const std::filesystem::path& file) {
  // What was measured beside another job is not believed for long.
  constexpr auto kFresh = std::chrono::hours(1);
  std::error_code error;
  const auto written = std::filesystem::last_write_time(file, error);
  if (error || std::filesystem::file_time_type::clock::now() - written > kFresh) return "";
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return ParseLinkFigures(line).ok() ? line : "";
}

// Beside and renamed, so that others never read half of it. What cannot be kept is measured again.
void WriteCache(const std::filesystem::path& file, const std::string& line) {
  if (file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(file.parent_path(), ignored);
  const std::filesystem::path beside = file.string() + fmt::format(".{}", ::getpid());
  {
    std::ofstream out(beside);
    out << line << "\n";
    if (!out) return;
  }
  std::filesystem::rename(beside, file, ignored);
}

// The middle of what the ranks measured, of those that measured at all.
LinkFigures MiddleOf(const std::vector<LinkFigures>& all) {
  const auto middle = [&](double LinkFigures::*field) {
    std::vector<double> values;
    for (const LinkFigures& figures : all) {
      if (figures.*field > 0) values.push_back(figures.*field);
    }
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return values[(values.size() - 1) / 2];
  };
  return {.memory_latency = middle(&LinkFigures::memory_latency),
          .memory_byte = middle(&LinkFigures::memory_byte),
          .memory_pass = middle(&LinkFigures::memory_pass),
          .host_memory_pass = middle(&LinkFigures::host_memory_pass),
          .socket_latency = middle(&LinkFigures::socket_latency),
          .socket_byte = middle(&LinkFigures::socket_byte),
          .reduce_byte = middle(&LinkFigures::reduce_byte),
          .large_reduce_byte = middle(&LinkFigures::large_reduce_byte)};
}

}  // namespace

// Only what may be chosen. And in the memory of one host direct moves the
// fewest bytes that can be moved, so whatever sends messages can win by latency alone: exchange
// does, with its one round, as long as its messages travel inside the ring.
bool TunedSelector::WorthPredicting(const Algorithm& algorithm, Operation operation,
                                    int64_t bytes) const {
  if (algorithm.for_comparison) return false;
  const bool in_memory = shape_.hosts == 1 && kDirect.supports(operation);
  if (!in_memory || algorithm.name == kDirect.name) return true;
  return algorithm.name == kExchange.name && bytes <= kInsideRing;
}

TunedSelector::TunedSelector(const LinkFigures& figures, std::span<const int> hosts)
    : hosts_(hosts.begin(), hosts.end()),
      shape_(ShapeOf(hosts)),
      figures_(figures),
      by_rule_(shape_) {}

std::vector<TunedSelector::Candidate> TunedSelector::Candidates(Operation operation,
                                                                int64_t bytes) const {
  std::vector<Candidate> candidates;
  const topology::LinkCosts costs = CostsOf(figures_, hosts_, bytes);
  for (const Algorithm& algorithm : Algorithms()) {
    Choice choice;
    choice.algorithm.index = static_cast<uint8_t>(&algorithm - Algorithms().data());
    choice.segments = SegmentsFor(algorithm.name, operation, shape_.ranks, bytes);
    if (!WorthPredicting(algorithm, operation, bytes)) continue;
    if (!CheckChoice(choice.algorithm, operation, shape_).ok()) continue;
    const auto schedule = algorithm.make({.operation = operation,
                                          .ranks = shape_.ranks,
                                          .segments = choice.segments,
                                          .hosts = hosts_});
    if (!schedule.ok()) continue;
    const auto prediction = PredictCost(*schedule, costs, bytes);
    if (prediction.ok()) candidates.push_back({choice, prediction->seconds});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  // Of those that tie with the cheapest the first in the list goes to the front; the exchange,
  // which needs memory for all that comes, only if it is alone or that is little.
  const auto place = [&](const Candidate& candidate) {
    const size_t index = candidate.choice.algorithm.index;
    const bool spacious = Algorithms()[index].name == kExchange.name && bytes > kInsideRing;
    return spacious ? Algorithms().size() : index;
  };
  const auto untied = std::find_if(
      candidates.begin(), candidates.end(),
      [&](const Candidate& candidate) { return candidate.seconds > candidates[0].seconds * kTie; });
  const auto first =
      std::min_element(candidates.begin(), untied,
                       [&](const auto& a, const auto& b) { return place(a) < place(b); });
  if (first != untied) std::rotate(candidates.begin(), first, first + 1);
  return candidates;
}

Choice TunedSelector::Choose(Operation operation, int64_t bytes) const {
  if (shape_.ranks > kMostRanks || shape_.ranks == 1) return by_rule_.Choose(operation, bytes);
  const int bits = std::bit_width(static_cast<uint64_t>(bytes));
  std::atomic<uint32_t>& chosen = chosen_[static_cast<size_t>(operation)][bits];
  if (const uint32_t packed = chosen.load(std::memory_order_relaxed); packed != 0) {
    return {AlgorithmId::Unpack(static_cast<uint16_t>(packed >> 16)),
            static_cast<uint16_t>(packed)};
  }
  // Sizes of as many bits share a choice: that for the middle of them.
  const int64_t middle = bits < 2 ? bytes : int64_t{3} << (bits - 2);
  const auto candidates = Candidates(operation, middle);
  const Choice choice =
      candidates.empty() ? by_rule_.Choose(operation, bytes) : candidates[0].choice;
  // Segments are at least 1, so this is not 0.
  chosen.store(static_cast<uint32_t>(choice.algorithm.Pack()) << 16 | choice.segments,
               std::memory_order_relaxed);
  return choice;
}

std::optional<Forecast> TunedSelector::Predict(Operation operation, int64_t bytes) const {
  if (shape_.ranks > kMostRanks || shape_.ranks == 1) return std::nullopt;
  const auto candidates = Candidates(operation, bytes);
  if (candidates.empty()) return std::nullopt;
  return Forecast{Algorithms()[candidates[0].choice.algorithm.index].name, candidates[0].seconds};
}

std::string TunedSelector::Explain(Operation operation, int64_t bytes) const {
  if (shape_.ranks > kMostRanks || shape_.ranks == 1) return by_rule_.Explain(operation, bytes);
  const Choice chosen = Choose(operation, bytes);
  std::string text =
      fmt::format("{} of {}, {} ranks on {} host{}: {}\n", NameOf(operation),
                  topology::FormatBytes(static_cast<double>(bytes)), shape_.ranks, shape_.hosts,
                  shape_.hosts == 1 ? "" : "s", chosen.algorithm.Name());
  for (const Candidate& candidate : Candidates(operation, bytes)) {
    text += fmt::format("  {:<18} {:>2} segments  {:>10} predicted\n",
                        candidate.choice.algorithm.Name(), candidate.choice.segments,
                        topology::FormatSeconds(candidate.seconds));
  }
  return text;
}

std::string CacheName(std::string_view version, std::span<const std::string> places,
                      std::string_view transport) {
  const std::string what = fmt::format("{}\n{}\n{}", version, transport, fmt::join(places, "\n"));
  return fmt::format("links-{:016x}", StableHash(what));
}

absl::StatusOr<LinkFigures> FiguresForAll(Communicator& communicator, std::span<const int> hosts,
                                          std::string_view transport, net::Star& star) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> places, star.AllGather(PlaceOf(star)));
  const std::filesystem::path file = CacheFile(places, transport);
  TUTTI_ASSIGN_OR_RETURN(const std::string kept,
                         star.Broadcast(communicator.rank() == 0 ? ReadCache(file) : ""));
  if (!kept.empty()) return ParseLinkFigures(kept);
  TUTTI_ASSIGN_OR_RETURN(const LinkFigures own, ProbeLinks(communicator, hosts));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<std::string> told, star.AllGather(ToText(own)));
  std::vector<LinkFigures> all;
  for (const std::string& text : told) {
    TUTTI_ASSIGN_OR_RETURN(const LinkFigures figures, ParseLinkFigures(text));
    all.push_back(figures);
  }
  const LinkFigures figures = MiddleOf(all);
  if (communicator.rank() == 0) WriteCache(file, ToText(figures));
  return figures;
}

}  // namespace tutti::collective
