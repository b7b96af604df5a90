// Between-graph replication: every worker runs the same graph on its slice of the batch, and the
// only nodes that know of the others are the collectives that stand between the gradients and their
// updates.
//
//   loss of the worker (a mean)        x samples ->  a sum: what is differentiated
//   gradients, in order of readiness   -> buckets -> AllReduce -> sums over all workers
//   sums                               x 1 / samples of all, which the update does on its way
//
// The first bucket also carries how many samples each worker had, its loss, and whether it asks for
// an end. So a worker with fewer samples counts less, one with none counts nothing, and all stop
// after the same step. An update is scaled by 0, and changes nothing, when nobody had a sample.
//
// The last layers' gradients are ready first; their bucket is sent while the earlier layers are
// still being differentiated. That needs no extra code: an AllReduce starts when its inputs are
// ready, and the lane continues with other ready nodes.
//
// Gradients that are rows (of look-up tables) travel as rows: see gather_rows.cc.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/collective/communicator.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/strategies/bucket_size.h"
#include "tutti/train/strategies/communicator_peers.h"
#include "tutti/train/strategies/gather_rows.h"
#include "tutti/train/strategies/join.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"
#include "tutti/train/strategies/synchronize_state.h"

namespace tutti {
namespace {

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

// A mean over this worker's samples as a sum; 0 where there are none, whatever the mean is then.
Output Counted(Output mean, Output samples) {
  return Select(Greater(samples, 0.0f), Mul(mean, As(samples, mean.dtype())), ZerosLike(mean));
}

// 1 / samples, or 0 where there are none. float64, so that workers follow a process alone closely.
Output Inverse(Output samples) {
  const Output count = Cast(samples, kFloat64);
  return Select(Greater(count, 0.0), Div(1.0, Maximum(count, 1.0)), ZerosLike(count));
}

constexpr std::string_view kNotMeasured = "auto";

// The words of "a, b, c".
std::vector<std::string> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(", "));
    words.emplace_back(word);
    text.remove_prefix(std::min(text.size(), word.size() + 2));
  }
  return words;
}

// The sizes of buckets that a checkpoint was trained with.
std::optional<BucketOptions> SavedSizes(const SumOrder& order) {
  const auto found = order.find("buckets");
  if (found == order.end()) return std::nullopt;
  const std::vector<std::string> words = SplitWords(found->second);
  BucketOptions sizes;
  int64_t* const numbers[] = {&sizes.first_bytes, &sizes.bytes};
  for (size_t i = 0; i < 2; ++i) {
    if (words.size() != 2) return std::nullopt;
    const char* const end = words[i].data() + words[i].size();
    const auto [rest, error] = std::from_chars(words[i].data(), end, *numbers[i]);
    if (error != std::errc() || rest != end || *numbers[i] < 1) return std::nullopt;
  }
  return sizes;
}

// A gradient of no fixed shape has no place in a bucket, and must not stay behind unsummed.
void RequireShape(const GradientAndVariable& entry) {
  const Shape& shape = entry.variable.shape();
  if (entry.gradient.empty() || entry.gradient.sparse() || shape.IsFullyKnown()) return;
  ThrowInvalidArgument(fmt::format(
      "strategy allreduce: variable {} is {}; expected a shape without unknown dimensions, so that "
      "its gradients can be summed",
      entry.variable.node->Describe(), shape.ToString()));
}

class AllReduceStrategy final : public Strategy {
 public:
  AllReduceStrategy(std::shared_ptr<collective::Communicator> communicator,
                    const AllReduceOptions& options)
      : Strategy(MakeCommunicatorPeers(communicator)),
        communicator_(std::move(communicator)),
        options_(options) {}

  std::string_view name() const override { return "allreduce"; }
  void Configure(SessionOptions& options) const override { options.communicator = communicator_; }

  Output Differentiated(const WorkerStep& step) const override {
    NameScope scope(step.loss.graph(), "allreduce");
    return Mul(step.loss, As(step.samples, step.loss.dtype()));
  }

  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    NameScope scope(step.loss.graph(), "allreduce");
    for (const GradientAndVariable& entry : list) RequireShape(entry);
    std::vector<GradientAndVariable> summed(list.begin(), list.end());
    const auto saved_sizes = SavedSizes(step.order);
    const BucketOptions sizes = options_.buckets ? *options_.buckets
                                : saved_sizes    ? *saved_sizes
                                                 : ChosenSizes(list);
    std::vector<GradientBucket> buckets = MakeBuckets(list, sizes);
    if (buckets.empty()) buckets.push_back({.dtype = kFloat32});
    joint->how = Describe(buckets, sizes);
    const std::vector<std::string> algorithms = AlgorithmsFor(buckets, step.order);
    for (size_t b = 0; b < buckets.size(); ++b) {
      SumBucket(buckets[b], b, algorithms[b], step, summed, joint);
    }
    joint->order = {{"buckets", fmt::format("{}, {}", sizes.first_bytes, sizes.bytes)},
                    {"algorithm", DescribeAlgorithms(buckets, algorithms)},
                    {"wire", options_.wire}};
    GatherRows(options_.wire, summed);
    const Output scale = Inverse(joint->samples);
    joint->loss = As(Mul(As(joint->loss, kFloat64), scale), kFloat32);
    for (GradientAndVariable& entry : summed) {
      if (!entry.gradient.empty()) entry = Scaled(entry, scale);
    }
    return summed;
  }

  std::vector<Output> AggregateState(std::span<const Output> changes, const WorkerStep& step,
                                     const JointStep& joint) const override {
    NameScope scope(step.loss.graph(), "allreduce");
    const Output scale = Inverse(joint.samples);
    std::map<DType, std::vector<size_t>> by_type;
    for (size_t i = 0; i < changes.size(); ++i) by_type[changes[i].dtype()].push_back(i);
    std::vector<Output> joined(changes.begin(), changes.end());
    for (const auto& [dtype, members] : by_type) {
      std::vector<Output> weighted;
      for (const size_t i : members) weighted.push_back(Counted(changes[i], step.samples));
      const std::vector<Output> sums = AllReduce(
          weighted,
          {.key = fmt::format("averages/{}", NameOf(dtype)), .algorithm = options_.algorithm});
      for (size_t k = 0; k < members.size(); ++k) {
        joined[members[k]] = Mul(sums[k], As(scale, dtype));
      }
    }
    return joined;
  }

  void SynchronizeState(Graph& graph, Session& session) const override {
    SynchronizeVariables(graph, session, peers());
  }

 private:
  // What the tuner expects of an all-reduce of so many bytes.
  std::optional<collective::Forecast> Expected(int64_t bytes) const {
    return communicator_->world().Predict(collective::Operation::kAllReduce, bytes);
  }

  BucketOptions ChosenSizes(std::span<const GradientAndVariable> list) const {
    int64_t total = 0;
    for (const GradientBucket& bucket : MakeBuckets(list, {})) total += bucket.bytes;
    return ChooseBucketSize(total, [this](int64_t bytes) -> std::optional<double> {
      const auto expected = Expected(bytes);
      return expected ? std::optional(expected->seconds) : std::nullopt;
    });
  }

  // The algorithm of each bucket; empty where the tuner chooses. Two numbers have one sum, but with
  // more workers the order of a sum is the algorithm's, so that of the checkpoint is used again.
  std::vector<std::string> AlgorithmsFor(std::span<const GradientBucket> buckets,
                                         const SumOrder& saved) const {
    std::vector<std::string> algorithms(buckets.size(), options_.algorithm);
    const auto found = saved.find("algorithm");
    const auto workers = saved.find("workers");
    if (!options_.algorithm.empty() || found == saved.end() || workers == saved.end() ||
        workers->second != fmt::format("{}", peers().workers()) || peers().workers() <= 2) {
      return algorithms;
    }
    const std::vector<std::string> names = SplitWords(found->second);
    if (names.size() != buckets.size()) return algorithms;
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (names[b] != kNotMeasured) algorithms[b] = names[b];
    }
    return algorithms;
  }

  std::string DescribeAlgorithms(std::span<const GradientBucket> buckets,
                                 std::span<const std::string> algorithms) const {
    if (peers().workers() <= 2) return "any, for two workers";
    std::vector<std::string> names;
    for (size_t b = 0; b < buckets.size(); ++b) {
      const auto expected = Expected(buckets[b].bytes);
      names.push_back(!algorithms[b].empty() ? algorithms[b]
                      : expected             ? std::string(expected->algorithm)
                                             : std::string(kNotMeasured));
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  std::string Describe(std::span<const GradientBucket> buckets, const BucketOptions& sizes) const {
    using topology::FormatBytes;
    int64_t total = 0, largest = 0;
    for (const GradientBucket& bucket : buckets) {
      total += bucket.bytes;
      largest = std::max(largest, bucket.bytes);
    }
    const auto expected = Expected(largest);
    std::string text = fmt::format(
        "{} of gradients in {} bucket{}, closed at {}", FormatBytes(double(total)), buckets.size(),
        buckets.size() == 1 ? "" : "s", FormatBytes(double(sizes.bytes)));
    if (sizes.first_bytes != sizes.bytes) {
      text += fmt::format(", the first at {}", FormatBytes(double(sizes.first_bytes)));
    }
    if (!options_.algorithm.empty()) {
      text += fmt::format("; {}, as asked for", options_.algorithm);
    } else if (expected) {
      text += fmt::format("; {} for the largest, {}, in {} by the cost model", expected->algorithm,
                          FormatBytes(double(largest)), topology::FormatSeconds(expected->seconds));
    } else {
      text += "; no link was measured";
    }
    return text;
  }

  // Other types than float32 travel as they are.
  std::string WireOf(DType dtype) const { return dtype == kFloat32 ? options_.wire : "as-is"; }

  // Sums the gradients of one bucket, and with the first the counts.
  void SumBucket(const GradientBucket& bucket, size_t number, const std::string& algorithm,
                 const WorkerStep& step, std::vector<GradientAndVariable>& summed,
                 JointStep* joint) const {
    std::vector<Output> values;
    if (number == 0) {
      values = {As(step.samples, bucket.dtype), As(step.stop, bucket.dtype),
                As(Counted(As(step.loss, kFloat32), step.samples), bucket.dtype)};
    }
    const size_t counts = values.size();
    for (const size_t i : bucket.entries) values.push_back(summed[i].gradient.dense);
    const CollectiveOptions call = {.key = fmt::format("grads/bucket_{}", number),
                                    .algorithm = algorithm,
                                    // The counts in the first one must arrive as they are.
                                    .wire = number == 0 ? "as-is" : WireOf(bucket.dtype)};
    const std::vector<Output> sums = AllReduce(values, call, fmt::format("bucket_{}", number));
    if (number == 0) {
      joint->samples = As(sums[0], kFloat32);
      joint->stop = As(sums[1], kFloat32);
      joint->loss = As(sums[2], kFloat32);
    }
    for (size_t k = 0; k < bucket.entries.size(); ++k) {
      summed[bucket.entries[k]].gradient.dense = sums[counts + k];
    }
  }

  const std::shared_ptr<collective::Communicator> communicator_;
  const AllReduceOptions options_;
};

}  // namespace

std::shared_ptr<const Strategy> MakeAllReduceStrategy(
    std::shared_ptr<collective::Communicator> communicator, const AllReduceOptions& options) {
  return std::make_shared<AllReduceStrategy>(std::move(communicator), options);
}

StrategyDef AllReduceStrategyDef() {
  return {.name = "allreduce",
          .summary = "workers that sum their gradients",
          .flags = {{.name = "algorithm",
                     .initial = "auto",
                     .help = "the all-reduce algorithm",
                     .choices = {"auto", "exchange", "direct", "ring", "halving-doubling", "tree",
                                 "hierarchical"}},
                    {.name = "wire",
                     .initial = "as-is",
                     .help = "how float32 gradients travel",
                     .choices = {"as-is", "bfloat16", "float16"},
                     .synonyms = {{"bf16", "bfloat16"}, {"fp16", "float16"}}},
                    {.name = "transport",
                     .initial = "auto",
                     .help = "between workers; auto: shm within a host, tcp between hosts",
                     .choices = {"auto", "shm", "tcp", "ucx", "shm+ucx"}}},
          .make = [](const Launch& launch) {
            const std::string& algorithm = launch.flag("algorithm");
            return MakeAllReduceStrategy(
                JoinTrainers(launch),
                {.algorithm = algorithm == "auto" ? "" : algorithm, .wire = launch.flag("wire")});
          }};
}

}  // namespace tutti
