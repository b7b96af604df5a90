#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/tutti/bench_allreduce.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/collective/reduction_names.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

using collective::CallOptions;
using collective::Communicator;
using collective::Handle;

// Memory as a program has it: anonymous, in large pages where the system gives them.
std::shared_ptr<std::byte> OrdinaryMemory(size_t bytes) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t size = (bytes + kHuge - 1) / kHuge * kHuge;
  void* data = std::aligned_alloc(kHuge, size);
  if (data == nullptr) {
    throw Error(Code::kResourceExhausted, fmt::format("bench allreduce: no {} bytes", size));
  }
  ::madvise(data, size, MADV_HUGEPAGE);
  std::memset(data, 0, size);
  return {static_cast<std::byte*>(data), [](std::byte* memory) { std::free(memory); }};
}

// The last so many ranks are servers, bring no data and need not get the result:
// "parameter-server:2:own".
int ServersApart(const std::string& algorithm) {
  constexpr std::string_view kName = "parameter-server:", kOwn = ":own";
  if (!algorithm.starts_with(kName) || !algorithm.ends_with(kOwn)) return 0;
  return std::atoi(algorithm.c_str() + kName.size());
}

class Measurement {
 public:
  Measurement(Communicator& communicator, const AllReduceBench& bench)
      : communicator_(communicator), world_(communicator.world()), bench_(bench) {
    call_.algorithm = bench.algorithm == "auto" ? "" : std::string_view(bench.algorithm);
    call_.reduction = ValueOrThrow(collective::ReductionFromName(bench.reduction));
    call_.wire = ValueOrThrow(collective::WireFromName(bench.wire));
  }

  void Run(int64_t bytes) {
    count_ = std::max<int64_t>(1, bytes / 4);
    std::shared_ptr<std::byte> ordinary;
    std::unique_ptr<net::RegisteredMemory> registered;
    if (bench_.memory == "registered") {
      registered = ValueOrThrow(communicator_.Allocate(static_cast<size_t>(count_) * 4));
      data_ = reinterpret_cast<float*>(registered->bytes().data());
    } else {
      ordinary = OrdinaryMemory(static_cast<size_t>(count_) * 4);
      data_ = reinterpret_cast<float*>(ordinary.get());
    }
    Check();
    // Whatever is made of zeros stays zero, however often.
    std::memset(data_, 0, static_cast<size_t>(count_) * 4);
    std::vector<double> first = Timed(5);
    MaxOverRanks(first);
    const double estimate = std::max(Median(first), 1e-7);
    const auto calls = [&](double most) {
      return static_cast<int>(std::clamp(bench_.seconds / estimate, 5.0, most));
    };
    std::vector<double> times = Timed(calls(5000));
    MaxOverRanks(times);
    std::vector<double> back_to_back = {bytes <= 65536 ? BackToBack(calls(20000)) : 0};
    MaxOverRanks(back_to_back);
    if (world_.rank() == 0) Print(bytes, Median(times), times.size(), back_to_back[0]);
    // Nobody gives memory back while others work in it.
    ThrowIfError(world_.Barrier().Wait());
  }

 private:
  Handle AllReduce() { return world_.AllReduce(data_, count_, kFloat32, call_); }

  void Check() {
    for (int64_t i = 0; i < count_; ++i) data_[i] = static_cast<float>(i % 31) * Own();
    ThrowIfError(world_.Barrier().Wait());
    const Handle handle = AllReduce();
    ThrowIfError(handle.Wait());
    algorithm_ = handle.algorithm();
    const int contributors = world_.size() - ServersApart(bench_.algorithm);
    if (call_.reduction != collective::Reduction::kSum || world_.rank() >= contributors) return;
    const float ranks = static_cast<float>(contributors);
    const float tolerance = call_.wire == collective::Wire::kAsIs ? 0 : 0.05f;
    for (int64_t i = 0; i < count_; ++i) {
      const float expected = static_cast<float>(i % 31) * ranks * (ranks + 1) / 2;
      if (std::abs(data_[i] - expected) > tolerance * expected) {
        throw Error(Code::kDataLoss,
                    fmt::format("bench allreduce: element {} of {} is {} on rank {}, expected {}",
                                i, count_, data_[i], world_.rank(), expected));
      }
    }
  }
  float Own() const { return static_cast<float>(world_.rank() + 1); }

  std::vector<double> Timed(int calls) {
    std::vector<double> times(static_cast<size_t>(calls));
    for (double& time : times) {
      ThrowIfError(world_.Barrier().Wait());
      const int64_t before = NowNanos();
      ThrowIfError(AllReduce().Wait());
      time = static_cast<double>(NowNanos() - before) * 1e-9;
    }
    return times;
  }

  double BackToBack(int calls) {
    ThrowIfError(world_.Barrier().Wait());
    const int64_t before = NowNanos();
    for (int i = 0; i < calls; ++i) ThrowIfError(AllReduce().Wait());
    return static_cast<double>(NowNanos() - before) * 1e-9 / calls;
  }

  void MaxOverRanks(std::vector<double>& values) {
    ThrowIfError(world_
                     .AllReduce(values.data(), static_cast<int64_t>(values.size()), kFloat64,
                                {.key = "times", .reduction = collective::Reduction::kMax})
                     .Wait());
  }

  void Print(int64_t bytes, double seconds, size_t calls, double back_to_back) const {
    const bool small = bytes <= 65536;
    const double value = small ? seconds * 1e6 : static_cast<double>(bytes) / seconds * 1e-9;
    const std::string what = fmt::format("{} bytes, {} ranks, {}, {}", bytes, world_.size(),
                                         bench_.transports[0], bench_.memory);
    if (!bench_.json) {
      Report({"allreduce", fmt::format("{}, {}", what, algorithm_), value, small ? "us" : "GB/s"},
             false);
      return;
    }
    nlohmann::ordered_json line = {
        {"bench", "allreduce"},          {"case", what},   {"value", value},
        {"unit", small ? "us" : "GB/s"}, {"bytes", bytes}, {"ranks", world_.size()},
        {"us", seconds * 1e6},           {"calls", calls}, {"algorithm", algorithm_}};
    if (back_to_back > 0) line["back_to_back_us"] = back_to_back * 1e6;
    FormatTo(stdout, "{}\n", line.dump());
  }

  Communicator& communicator_;
  collective::Group& world_;
  const AllReduceBench& bench_;
  CallOptions call_;
  float* data_ = nullptr;
  int64_t count_ = 0;
  std::string algorithm_;
};

}  // namespace

void AllReduceRank(const AllReduceBench& bench) {
  if (bench.parent > 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != bench.parent) return;  // it died before the line above
  }
  std::vector<int64_t> sizes;
  for (const std::string& text : bench.bytes) {
    sizes.push_back(ValueOrThrow(topology::ParseBytes(text)));
  }
  auto communicator = ValueOrThrow(Communicator::Create({.bootstrap = {.rank = bench.rank,
                                                                       .size = bench.size,
                                                                       .address = bench.address,
                                                                       .file = bench.file,
                                                                       .endpoints = {},
                                                                       .job = "tutti-bench"},
                                                         .transport = bench.transports.at(0)}));
  Measurement measurement(*communicator, bench);
  for (int64_t bytes : sizes) {
    if (bench.explain && bench.rank == 0) {
      FormatTo(stderr, "{}",
               communicator->world().Explain(collective::Operation::kAllReduce, bytes));
    }
    measurement.Run(bytes);
  }
}

}  // namespace tutti::tools
