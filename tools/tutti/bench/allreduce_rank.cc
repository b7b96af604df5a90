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

#include "tools/tutti/bench/allreduce.h"
#include "tools/tutti/bench/allreduce_data.h"
#include "tools/tutti/bench/allreduce_plan.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/collective/reduce/reduction_names.h"

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
// "central:2:own".
int ServersApart(const std::string& algorithm) {
  constexpr std::string_view kName = "central:", kOwn = ":own";
  if (!algorithm.starts_with(kName) || !algorithm.ends_with(kOwn)) return 0;
  return std::atoi(algorithm.c_str() + kName.size());
}

CallOptions CallOf(const AllReduceBench& bench) {
  return {.algorithm = bench.algorithm == "auto" ? "" : std::string_view(bench.algorithm),
          .reduction = ValueOrThrow(collective::ReductionFromName(bench.reduction)),
          .wire = ValueOrThrow(collective::WireFromName(bench.wire))};
}

// Calls without a barrier between them are made up to this size.
constexpr int64_t kBackToBack = 4096;

class Measurement {
 public:
  Measurement(Communicator& communicator, const AllReduceBench& bench)
      : communicator_(communicator),
        world_(communicator.world()),
        bench_(bench),
        call_(CallOf(bench)),
        fresh_(world_.rank(), bench.broadcast ? 1 : world_.size() - ServersApart(bench.algorithm),
               call_.reduction, call_.wire, bench.broadcast) {}

  void Run(int64_t bytes) {
    count_ = bytes / 4;
    std::shared_ptr<std::byte> ordinary;
    std::unique_ptr<net::RegisteredMemory> registered;
    if (bench_.memory == "registered") {
      registered = ValueOrThrow(communicator_.Allocate(static_cast<size_t>(bytes)));
      data_ = reinterpret_cast<float*>(registered->bytes().data());
    } else {
      ordinary = OrdinaryMemory(static_cast<size_t>(bytes));
      data_ = reinterpret_cast<float*>(ordinary.get());
    }
    std::vector<double> first = Timed(5);
    MaxOverRanks(first);
    const double estimate = std::max(Median(first), 1e-7);
    const auto calls = [&](double most) {
      return static_cast<int>(std::clamp(bench_.seconds / estimate, 5.0, most));
    };
    std::vector<double> times = Timed(calls(5000));
    MaxOverRanks(times);
    std::vector<double> back_to_back = {bytes <= kBackToBack ? BackToBack(calls(20000)) : 0};
    MaxOverRanks(back_to_back);
    if (world_.rank() == 0) Print(bytes, Median(times), times.size(), back_to_back[0]);
    // Nobody gives memory back while others work in it.
    ThrowIfError(world_.Barrier().Wait());
  }

 private:
  Handle Call() {
    return bench_.broadcast ? world_.Broadcast(data_, count_, kFloat32, call_)
                            : world_.AllReduce(data_, count_, kFloat32, call_);
  }

  void Check() const {
    ThrowIfError(WithPrefix(fresh_.Check(data_, count_, call_number_), "bench allreduce: "));
  }

  // Calls on data that was written just before; every result is checked. Only the calls are timed.
  std::vector<double> Timed(int calls) {
    std::vector<double> times(static_cast<size_t>(calls));
    for (double& time : times) {
      fresh_.Write(data_, count_, ++call_number_);
      ThrowIfError(world_.Barrier().Wait());
      const int64_t before = NowNanos();
      const Handle handle = Call();
      ThrowIfError(handle.Wait());
      time = static_cast<double>(NowNanos() - before) * 1e-9;
      algorithm_ = handle.algorithm();
      Check();
    }
    return times;
  }

  // Calls without a barrier between them. The data of each is written, and its result checked,
  // within the time: there are few of them.
  double BackToBack(int calls) {
    ThrowIfError(world_.Barrier().Wait());
    const int64_t before = NowNanos();
    for (int i = 0; i < calls; ++i) {
      fresh_.Write(data_, count_, ++call_number_);
      ThrowIfError(Call().Wait());
      Check();
    }
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
    const std::string name = bench_.broadcast ? "broadcast" : "allreduce";
    const std::string what = fmt::format("{} bytes, {} ranks, {}, {}", bytes, world_.size(),
                                         bench_.transports[0], bench_.memory);
    if (!bench_.json) {
      Report({name, fmt::format("{}, {}", what, algorithm_), value, small ? "us" : "GB/s"}, false);
      return;
    }
    nlohmann::ordered_json line = {{"bench", name},          {"case", what},
                                   {"value", value},         {"unit", small ? "us" : "GB/s"},
                                   {"bytes", bytes},         {"ranks", world_.size()},
                                   {"us", seconds * 1e6},    {"calls", calls},
                                   {"algorithm", algorithm_}};
    if (back_to_back > 0) line["back_to_back_us"] = back_to_back * 1e6;
    FormatTo(stdout, "{}\n", line.dump());
  }

  Communicator& communicator_;
  collective::Group& world_;
  const AllReduceBench& bench_;
  const CallOptions call_;
  const FreshData fresh_;
  float* data_ = nullptr;
  int64_t count_ = 0;
  int64_t call_number_ = 0;
  std::string algorithm_;
};

}  // namespace

void AllReduceRank(const AllReduceBench& bench) {
  if (bench.parent > 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != bench.parent) return;  // it died before the line above
  }
  const auto check = [](const absl::Status& status) {
    ThrowIfError(WithPrefix(status, "bench allreduce: "));
  };
  check(CheckOptions(bench));
  check(CheckFits(bench, 1, AvailableMemory()));
  const std::vector<int64_t> sizes = ValueOrThrow(SizesOf(bench));
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
               communicator->world().Explain(bench.broadcast ? collective::Operation::kBroadcast
                                                             : collective::Operation::kAllReduce,
                                             bytes));
    }
    measurement.Run(bytes);
  }
}

}  // namespace tutti::tools
