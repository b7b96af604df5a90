// Operations whose cost in latencies and bytes is known are timed, and the figures solved for:
//
//   a barrier of n ranks                     ceil(log2 n) latencies
//   ring all-reduce of K bytes               2 (n-1)/n K bytes of messages, and 2 (n-1) latencies
//   direct all-reduce of K bytes, in cache   2 latencies, and 2K bytes read or written by each core
//   the same of more than the caches hold    2 n K bytes of the host's memory
//
// within the ranks of a host, and between the first ranks of the hosts. Before every call each rank
// writes its data, since that is what gradients are: data that a call left behind would lie in the
// caches of those who need it. The fastest of a few calls counts: what disturbs a call only makes
// it slower.
#include "tutti/collective/tuning/link_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <functional>
#include <limits>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {
namespace {

constexpr int64_t kSmall = 64 << 10;
constexpr int64_t kMiddle = 256 << 10;
constexpr int64_t kLarge = 4 << 20;
// Data and as much that comes for it stay in a core's second-level cache.
constexpr int64_t kCached = 512 << 10;
// Calls that would take longer are not made: the whole has 50 ms.
constexpr double kLongestCall = 4e-3;

// The data of a timed call, freshly written by every rank, and looked at afterwards.
struct ProbeData {
  float* values = nullptr;
  int64_t count = 0;

  void Write(float value) const { std::fill(values, values + count, value); }
  // In every cache line: whether it is the sum over so many ranks.
  absl::Status Check(float value, int ranks) const {
    constexpr int64_t kLineElements = 16;
    for (int64_t i = 0; i < count; i += kLineElements) {
      if (values[i] == value * static_cast<float>(ranks)) continue;
      return Internal("probing the links: element {} of {} is {}, expected {}", i, count, values[i],
                      value * static_cast<float>(ranks));
    }
    return absl::OkStatus();
  }
};

// The fastest call, on the slowest rank: batches of calls until they have taken their time. All
// ranks stop together, since they compare how long it took.
absl::StatusOr<double> Fastest(Group& group, const ProbeData& data,
                               const std::function<Handle()>& call) {
  constexpr int kBatches = 5;
  constexpr int kCalls = 4;
  constexpr double kEnough = 2e-3;
  double fastest_and_spent[2] = {std::numeric_limits<double>::infinity(), 0};
  for (int batch = 0; batch < kBatches && fastest_and_spent[1] < kEnough; ++batch) {
    const int64_t start = NowNanos();
    for (int i = 0; i < kCalls; ++i) {
      const float value = static_cast<float>(1 + batch * kCalls + i);
      data.Write(value);
      TUTTI_RETURN_IF_ERROR(group.Barrier({.algorithm = "exchange"}).Wait());
      const int64_t before = NowNanos();
      TUTTI_RETURN_IF_ERROR(call().Wait());
      fastest_and_spent[0] =
          std::min(fastest_and_spent[0], static_cast<double>(NowNanos() - before) * 1e-9);
      TUTTI_RETURN_IF_ERROR(data.Check(value, group.size()));
    }
    fastest_and_spent[1] += static_cast<double>(NowNanos() - start) * 1e-9;
    TUTTI_RETURN_IF_ERROR(group
                              .AllReduce(fastest_and_spent, 2, kFloat64,
                                         {.algorithm = "exchange", .reduction = Reduction::kMax})
                              .Wait());
  }
  return fastest_and_spent[0];
}

struct MessageFigures {
  double latency;
  double byte;
};

absl::StatusOr<MessageFigures> ProbeMessages(Group& group, float* data) {
  const double n = group.size();
  TUTTI_ASSIGN_OR_RETURN(const double barrier, Fastest(group, {}, [&] {
                           return group.Barrier({.algorithm = "exchange"});
                         }));
  MessageFigures figures{};
  figures.latency = barrier / std::bit_width(static_cast<unsigned>(group.size() - 1));
  double seconds = 0;
  for (int64_t bytes : {kSmall, kMiddle}) {
    if (bytes > kSmall && seconds * 4 > kLongestCall) break;
    TUTTI_ASSIGN_OR_RETURN(seconds, Fastest(group, {data, bytes / 4}, [&] {
                             return group.AllReduce(data, bytes / 4, kFloat32,
                                                    {.algorithm = "ring"});
                           }));
    const double transfer = seconds - 2 * (n - 1) * figures.latency;
    figures.byte =
        std::max(transfer, seconds / 10) / (2 * (n - 1) / n * static_cast<double>(bytes));
  }
  return figures;
}

absl::Status ProbeMemory(Group& group, float* data, LinkFigures* figures) {
  TUTTI_ASSIGN_OR_RETURN(const MessageFigures messages, ProbeMessages(group, data));
  figures->memory_latency = messages.latency;
  figures->memory_byte = messages.byte;
  const auto direct = [&](int64_t bytes) {
    return Fastest(group, {data, bytes / 4}, [&group, data, bytes] {
      return group.AllReduce(data, bytes / 4, kFloat32, {.algorithm = "direct"});
    });
  };
  TUTTI_ASSIGN_OR_RETURN(const double cached, direct(kMiddle));
  figures->memory_pass = std::max(cached - 2 * messages.latency, cached / 10) / (2.0 * kMiddle);
  TUTTI_ASSIGN_OR_RETURN(const double large, direct(kLarge));
  figures->host_memory_pass = large / (2.0 * group.size() * kLarge);
  return absl::OkStatus();
}

// Adds the second of two arrays of so many bytes to the first.
double ProbeReduction(float* data, int64_t bytes) {
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 5; ++i) {
    const int64_t before = NowNanos();
    ReduceInto(Reduction::kSum, kFloat32, data, data + bytes / 4, bytes / 4);
    fastest = std::min(fastest, static_cast<double>(NowNanos() - before) * 1e-9);
  }
  return fastest / static_cast<double>(bytes);
}

// The fields in their order, for text.
std::vector<double*> FieldsOf(LinkFigures& figures) {
  return {&figures.memory_latency,   &figures.memory_byte,      &figures.memory_pass,
          &figures.host_memory_pass, &figures.socket_latency,   &figures.socket_byte,
          &figures.reduce_byte,      &figures.large_reduce_byte};
}

}  // namespace

std::string ToText(const LinkFigures& figures) {
  LinkFigures copy = figures;
  std::string text = "links";
  for (const double* field : FieldsOf(copy)) text += fmt::format(" {}", *field);
  return text;
}

absl::StatusOr<LinkFigures> ParseLinkFigures(std::string_view text) {
  LinkFigures figures;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  bool good = text.starts_with("links");
  at += good ? 5 : 0;
  for (double* field : FieldsOf(figures)) {
    good = good && at < end && *at == ' ';
    if (!good) break;
    const auto [next, error] = std::from_chars(at + 1, end, *field);
    good = error == std::errc() && *field >= 0 && *field < 1e6;
    at = next;
  }
  if (!good || at != end) {
    return InvalidArgument("\"{}\" are no figures of links: expected \"links\" and 8 numbers",
                           text.substr(0, 100));
  }
  return figures;
}

absl::StatusOr<LinkFigures> ProbeLinks(Communicator& communicator, std::span<const int> hosts) {
  const int own = hosts[communicator.rank()];
  std::vector<int> neighbours, leaders;
  for (int r = 0; r < communicator.size(); ++r) {
    if (hosts[r] == own) neighbours.push_back(r);
    if (std::find(hosts.begin(), hosts.begin() + r, hosts[r]) == hosts.begin() + r) {
      leaders.push_back(r);
    }
  }
  TUTTI_ASSIGN_OR_RETURN(const auto memory, communicator.Allocate(kLarge));
  float* const data = reinterpret_cast<float*>(memory->bytes().data());
  LinkFigures figures;
  figures.reduce_byte = ProbeReduction(data, kSmall);
  figures.large_reduce_byte = ProbeReduction(data, kLarge / 2);
  if (neighbours.size() > 1) {
    TUTTI_ASSIGN_OR_RETURN(const auto group,
                           communicator.MakeGroup("tutti/neighbours", neighbours));
    TUTTI_RETURN_IF_ERROR(ProbeMemory(*group, data, &figures));
  }
  if (leaders.size() > 1 && neighbours[0] == communicator.rank()) {
    TUTTI_ASSIGN_OR_RETURN(const auto group, communicator.MakeGroup("tutti/leaders", leaders));
    TUTTI_ASSIGN_OR_RETURN(const MessageFigures messages, ProbeMessages(*group, data));
    figures.socket_latency = messages.latency;
    figures.socket_byte = messages.byte;
  }
  // Memory is given back only when nobody works in it any more.
  TUTTI_RETURN_IF_ERROR(communicator.world().Barrier({.algorithm = "exchange"}).Wait());
  return figures;
}

topology::LinkCosts CostsOf(const LinkFigures& figures, std::span<const int> hosts, int64_t bytes) {
  const auto link = [](double latency, double byte) {
    return topology::Link{.bytes_per_second = byte > 0 ? 1 / byte : 1e12, .latency = latency};
  };
  const double reduce = bytes > kCached ? figures.large_reduce_byte : figures.reduce_byte;
  topology::LinkCosts costs = topology::TwoLevelCosts(
      hosts, link(figures.memory_latency, figures.memory_byte),
      link(figures.socket_latency, figures.socket_byte), reduce > 0 ? 1 / reduce : 0);
  // Where no ranks share memory nobody has measured a pass over it: a reduction makes three.
  costs.memory = figures.memory_pass > 0 ? figures.memory_pass : reduce / 3;
  costs.host_memory = figures.host_memory_pass;
  return costs;
}

}  // namespace tutti::collective
