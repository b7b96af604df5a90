// `tutti explain cost`: what each algorithm would take on given links. Every figure comes from the
// schedule that would run: rounds and bytes are counted in it, and the times are those of its
// replay.

#include "tutti/collective/tuning/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tools/tutti/explain/explain.h"
#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/schedule/step_graph.h"
#include "tutti/topology/fabric.h"
#include "tutti/topology/link_costs.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

using collective::Algorithm;
using collective::Prediction;
using collective::Schedule;
using collective::Step;
using collective::StepKind;
using topology::Fabric;
using topology::FormatBytes;
using topology::FormatSeconds;
using topology::Link;
using topology::LinkCosts;

constexpr int kMaxRanks = 1024;              // a ring of 1024 has 4 million steps
constexpr int64_t kMaxStepsToTry = 100'000;  // of a schedule with segments that nobody asked for

// What is asked, with every option read.
struct Question {
  int64_t bytes = 0;
  int ranks = 0;
  LinkCosts costs;
  std::optional<Fabric> fabric;
  Link link;  // between hosts
};

struct Row {
  std::string name;
  std::string refusal;  // why it cannot be done here; the rest is empty then
  int64_t rounds = 0;
  double sent = 0;  // by the busiest rank
  double received = 0;
  Prediction prediction;
};

std::string Both(double rate) {
  return fmt::format("{} ({})", topology::FormatRate(rate), topology::FormatBitRate(rate));
}

// The value of an option, with the option named in the error.
template <typename T>
absl::StatusOr<T> Read(std::string_view option, const std::string& text,
                       absl::StatusOr<T> (*parse)(std::string_view)) {
  absl::StatusOr<T> value = parse(text);
  if (!value.ok()) return WithPrefix(value.status(), fmt::format("{}: ", option));
  return value;
}

absl::Status ReadTopology(const CostOptions& options, Question* question) {
  if (!options.link.empty()) {
    return InvalidArgument("--link and --topology were both given; expected one of them");
  }
  TUTTI_ASSIGN_OR_RETURN(question->fabric, topology::ReadFabric(options.topology));
  const Fabric& fabric = *question->fabric;
  question->link = fabric.host_link;
  if (question->ranks == 0) question->ranks = fabric.replicas;
  if (options.bytes.empty()) question->bytes = fabric.parameters * fabric.bytes_per_parameter;
  if (question->ranks == 0 || (options.bytes.empty() && fabric.parameters == 0)) {
    return InvalidArgument("{} has no [model]; say --bytes and --ranks", options.topology);
  }
  return absl::OkStatus();
}

absl::StatusOr<Question> ReadQuestion(const CostOptions& options) {
  Question question{.ranks = options.ranks};
  if (!options.bytes.empty()) {
    TUTTI_ASSIGN_OR_RETURN(question.bytes, Read("--bytes", options.bytes, topology::ParseBytes));
  }
  double reduce = 0;
  if (!options.reduce.empty()) {
    TUTTI_ASSIGN_OR_RETURN(reduce, Read("--reduce", options.reduce, topology::ParseRate));
  }
  if (!options.topology.empty()) {
    TUTTI_RETURN_IF_ERROR(ReadTopology(options, &question));
  } else if (options.bytes.empty() || options.ranks == 0 || options.link.empty()) {
    return InvalidArgument(
        "--bytes, --ranks and --link are needed, such as --bytes 1.2G --ranks 10 --link 1GB/s; or "
        "--topology FILE");
  } else {
    TUTTI_ASSIGN_OR_RETURN(question.link.bytes_per_second,
                           Read("--link", options.link, topology::ParseRate));
    TUTTI_ASSIGN_OR_RETURN(question.link.latency,
                           Read("--latency", options.latency, topology::ParseSeconds));
  }
  if (question.ranks < 1 || question.ranks > kMaxRanks) {
    return InvalidArgument("--ranks is {}; expected 1 to {}", question.ranks, kMaxRanks);
  }
  if (options.segments < 0) {
    return InvalidArgument("--segments is {}; expected 1 or more, or 0 for what is best",
                           options.segments);
  }
  for (const int servers : options.servers) {
    if (servers >= 1 && servers <= question.ranks) continue;
    return InvalidArgument("--servers is {}; expected 1 to {}, the number of ranks", servers,
                           question.ranks);
  }
  if (question.fabric) {
    TUTTI_ASSIGN_OR_RETURN(question.costs, topology::FabricCosts(*question.fabric, question.ranks));
    if (reduce > 0) question.costs.reduce = 1 / reduce;
  } else {
    question.costs = topology::UniformCosts(question.ranks, question.link, reduce);
  }
  return question;
}

// A step that works in memory of another host; none if there is no such step.
bool ReachesIntoOtherHosts(const Schedule& schedule, const std::vector<int>& hosts) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Step& step : schedule.steps[rank]) {
      if (step.set < 0) continue;
      for (const int32_t peer : schedule.sets[step.set]) {
        if (hosts[peer] != hosts[rank]) return true;
      }
    }
  }
  return false;
}

// Bytes that the busiest rank sends and receives, loads and stores in peers' memory included.
void CountBytes(const Schedule& schedule, double bytes, Row* row) {
  const double piece = bytes / schedule.data_pieces();
  std::vector<double> sent(schedule.ranks), received(schedule.ranks);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Step& step : schedule.steps[rank]) {
      const bool loads = step.kind == StepKind::kReduceFrom || step.kind == StepKind::kReduceToAll;
      const bool stores = step.kind == StepKind::kStoreTo || step.kind == StepKind::kReduceToAll;
      if (step.kind == StepKind::kSend) sent[rank] += piece;
      if (step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
        received[rank] += piece;
      }
      if (step.set < 0) continue;
      for (const int32_t peer : schedule.sets[step.set]) {
        if (peer == rank) continue;
        if (loads) sent[peer] += piece, received[rank] += piece;
        if (stores) sent[rank] += piece, received[peer] += piece;
      }
    }
  }
  row->sent = *std::max_element(sent.begin(), sent.end());
  row->received = *std::max_element(received.begin(), received.end());
}

absl::StatusOr<Row> Cost(const Question& question, const Schedule& schedule, std::string name) {
  Row row{.name = std::move(name)};
  if (ReachesIntoOtherHosts(schedule, question.costs.hosts)) {
    row.refusal = "needs memory that all ranks share; these are on several hosts";
    return row;
  }
  CountBytes(schedule, static_cast<double>(question.bytes), &row);
  TUTTI_ASSIGN_OR_RETURN(const collective::Replay replay,
                         collective::Replay::Make(schedule, question.costs));
  row.rounds = replay.Rounds();
  TUTTI_ASSIGN_OR_RETURN(row.prediction, replay.Predict(question.bytes));
  return row;
}

int64_t StepsOf(const Schedule& schedule) {
  int64_t count = 0;
  for (const std::vector<Step>& steps : schedule.steps) count += int64_t(steps.size());
  return count;
}

// The row of an algorithm: with as many segments as were asked for, or as are best.
absl::StatusOr<Row> CostBest(const Question& question, const Algorithm& algorithm, int segments,
                             int servers) {
  std::string name(algorithm.name);
  if (servers > 0) name += fmt::format(", {} server{}", servers, servers == 1 ? "" : "s");
  // Segments would let a server's pull begin before the push ends; it is shown as the baseline it
  // is.
  std::vector<int> cuts = {segments > 0 ? segments : 1};
  if (segments == 0 && servers == 0) cuts = {1, 4, 16, 64};
  std::optional<Row> best;
  int64_t steps_uncut = 0;
  for (const int cut : cuts) {
    if (cut > 1 && steps_uncut * cut > kMaxStepsToTry) break;
    const absl::StatusOr<Schedule> schedule =
        algorithm.make({.ranks = question.ranks,
                        .segments = cut,
                        .variant = collective::CentralVariant(std::max(servers, 1)),
                        .hosts = question.costs.hosts});
    if (!schedule.ok()) return WithPrefix(schedule.status(), name + ": ");
    if (best && schedule->segments == 1) break;
    if (cut == 1) steps_uncut = StepsOf(*schedule);
    TUTTI_ASSIGN_OR_RETURN(
        Row row,
        Cost(question, *schedule,
             schedule->segments == 1 ? name
                                     : fmt::format("{}, {} segments", name, schedule->segments)));
    if (!row.refusal.empty()) return row;
    // More segments have to be worth it.
    if (!best || row.prediction.seconds < 0.99 * best->prediction.seconds) best = std::move(row);
  }
  return *std::move(best);
}

absl::StatusOr<std::vector<Row>> CostAll(const Question& question, const CostOptions& options) {
  std::vector<Row> rows;
  for (const Algorithm& algorithm : collective::Algorithms()) {
    if (!algorithm.supports(collective::Operation::kAllReduce)) continue;
    std::vector<int> variants = {0};
    if (algorithm.name == collective::kCentral.name) {
      variants = options.servers;
      if (variants.empty()) variants = {1};
      if (options.servers.empty() && question.ranks > 1) variants.push_back(question.ranks);
    }
    for (const int servers : variants) {
      TUTTI_ASSIGN_OR_RETURN(Row row, CostBest(question, algorithm, options.segments, servers));
      rows.push_back(std::move(row));
    }
  }
  // Times that are shown alike are alike: what is left of a sum's rounding decides nothing.
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    if (!a.refusal.empty() || !b.refusal.empty()) return a.refusal.empty() && !b.refusal.empty();
    const double x = a.prediction.seconds;
    const double y = b.prediction.seconds;
    return x < y && FormatSeconds(x) != FormatSeconds(y);
  });
  return rows;
}

std::string DescribeLink(std::string_view what, const Link& link) {
  return fmt::format("  {:<22}{}, {}\n", what, Both(link.bytes_per_second),
                     FormatSeconds(link.latency));
}

std::string DescribeFabric(const Fabric& fabric) {
  std::string text = fmt::format("{}: {} devices, {} a host, {} hosts a rack, {} rack{}\n",
                                 fabric.name.empty() ? "topology" : fabric.name, fabric.devices(),
                                 fabric.devices_per_host, fabric.hosts_per_rack, fabric.racks,
                                 fabric.racks == 1 ? "" : "s");
  if (fabric.devices_per_host > 1) text += DescribeLink("between devices", fabric.device_link);
  text += DescribeLink("host to rack switch", fabric.host_link);
  if (fabric.racks > 1) {
    text += DescribeLink("rack to spine", fabric.rack_link);
    text += DescribeLink("spine", fabric.spine);
  }
  if (fabric.parameters > 0) {
    text += fmt::format(
        "{} parameters of {} bytes: {} in each of {} replicas\n",
        topology::FormatCount(static_cast<double>(fabric.parameters)), fabric.bytes_per_parameter,
        FormatBytes(static_cast<double>(fabric.parameters) * fabric.bytes_per_parameter),
        fabric.replicas);
  }
  return text + fmt::format("1 TB takes {} at {}\n\n",
                            FormatSeconds(1e12 / fabric.host_link.bytes_per_second),
                            topology::FormatBitRate(fabric.host_link.bytes_per_second));
}

std::string Describe(const Question& question) {
  std::string text = question.fabric ? DescribeFabric(*question.fabric) : "";
  text += fmt::format("all-reduce of {} among {} ranks\n", FormatBytes(double(question.bytes)),
                      question.ranks);
  if (!question.fabric) {
    text += fmt::format("each rank has a link of {} each way, latency {}; ",
                        Both(question.link.bytes_per_second), FormatSeconds(question.link.latency));
  }
  return text +
         (question.costs.reduce > 0
              ? fmt::format("a rank adds {}\n\n", topology::FormatRate(1 / question.costs.reduce))
              : "sums take no time\n\n");
}

std::string Table(const std::vector<Row>& rows) {
  size_t width = 0;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "algorithm", width,
                                 "rounds", "sends", "receives", "reduce", "share", "in all");
  for (const Row& row : rows) {
    if (!row.refusal.empty()) {
      text += fmt::format("{:<{}}  {}\n", row.name, width, row.refusal);
      continue;
    }
    const Prediction& prediction = row.prediction;
    text += fmt::format(
        "{:<{}} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}\n", row.name, width, row.rounds,
        FormatBytes(row.sent), FormatBytes(row.received), FormatSeconds(prediction.reduced),
        FormatSeconds(prediction.seconds - prediction.reduced), FormatSeconds(prediction.seconds));
  }
  return text;
}

// The two formulas that the comparison is about, with these numbers in them.
std::string ClosedForms(const Question& question) {
  const double n = question.ranks;
  const auto k = static_cast<double>(question.bytes);
  const double through_server = (n - 1) * k;
  std::string text = fmt::format(
      "\nsends, receives: the busiest rank. reduce: until the last sum is made (to a server: the "
      "push);\nshare: from there until every rank has it all (from a server: the pull).\n"
      "ring: 2(N-1)/N K = {} per rank, whatever N\n"
      "one server beside a worker: (N-1) K = {} in and {} out",
      FormatBytes(2 * (n - 1) / n * k), FormatBytes(through_server), FormatBytes(through_server));
  // Where hosts have several devices, not all of it passes the host's link.
  if (!question.fabric || question.fabric->devices_per_host == 1) {
    const std::string phase = FormatSeconds(through_server / question.link.bytes_per_second);
    text += fmt::format("; (N-1) K/B = {} to push and {} to pull", phase, phase);
  }
  return text + "\n";
}

}  // namespace

absl::StatusOr<std::string> ExplainCost(const CostOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const Question question, ReadQuestion(options));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Row> rows, CostAll(question, options));
  return Describe(question) + Table(rows) + ClosedForms(question);
}

}  // namespace tutti::tools
