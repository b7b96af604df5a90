// One rank of a job that does nothing but collectives until somebody dies: what
// tests/fault/collective_faults.py kills and stops.
//
//   collective_rank RANK SIZE MEETING_FILE TRANSPORT SEED SILENCE_SECONDS
//
// All ranks draw the same operations from the seed: any operation, algorithm, size and type,
// several under way at a time, on registered and on ordinary memory. Every result that is reported
// as done is checked. Prints "running" after the first operations, and a line of JSON at the end:
// how the first operation that failed ended, when (monotonic clock), and whether all others that
// were under way ended as well, alike or with the right data.
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/communicator.h"
#include "tutti/testing/collective/trial.h"

namespace tutti::collective {
namespace {

constexpr int kUnderWay = 3;
constexpr int kWarmUp = 2 * kUnderWay;
constexpr int64_t kMostElements = 300'007;  // of a chunk
constexpr size_t kLargestElement = 8;

template <typename T>
const T& Any(const std::vector<T>& values, std::mt19937& random) {
  return values[random() % values.size()];
}

Trial RandomTrial(int ranks, bool memory_links, std::mt19937& random) {
  static const std::vector<DType> kTypes = {kFloat32, kFloat64, kBFloat16, kInt32};
  static const std::vector<int64_t> kCounts = {1, 1000, 65'536, kMostElements};
  Trial trial;
  trial.operation = static_cast<Operation>(1 + random() % 9);
  std::vector<std::string> algorithms = {""};
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.supports(trial.operation) && (memory_links || !algorithm.needs_memory_links)) {
      algorithms.emplace_back(algorithm.name);
    }
  }
  trial.algorithm = Any(algorithms, random);
  trial.dtype = Any(kTypes, random);
  trial.count = Any(kCounts, random);
  trial.root = static_cast<int>(random() % static_cast<uint32_t>(ranks));
  trial.salt = random() % 1000;
  return trial;
}

// Room for one operation: its memory, and the operation while it is under way.
class Slot {
 public:
  Slot(Communicator& communicator, bool registered) : communicator_(communicator) {
    const size_t bytes = kMostElements * kLargestElement * size_t(communicator.size());
    for (Memory* memory : {&data_, &output_}) {
      if (registered) {
        memory->registered = ValueOrThrow(communicator.Allocate(bytes));
        memory->bytes = memory->registered->bytes().data();
      } else {
        memory->ordinary.resize(bytes);
        memory->bytes = memory->ordinary.data();
      }
    }
  }

  void Start(const Trial& trial) {
    part_ = std::make_unique<TrialPart>(trial, communicator_.rank(), communicator_.size(),
                                        data_.bytes, output_.bytes);
    part_->Fill();
    handle_ = part_->Start(communicator_.world());
  }
  bool under_way() const { return part_ != nullptr; }
  // How the operation ended. DATA_LOSS if it was reported as done and its data is not right.
  absl::Status Finish() {
    absl::Status status = handle_.Wait();
    if (status.ok()) status = part_->Check();
    part_.reset();
    return status;
  }

 private:
  struct Memory {
    std::unique_ptr<net::RegisteredMemory> registered;
    std::vector<std::byte> ordinary;
    std::byte* bytes = nullptr;
  };
  Communicator& communicator_;
  Memory data_, output_;
  std::unique_ptr<TrialPart> part_;
  Handle handle_;
};

// Operation after operation, until one fails.
nlohmann::json RunUntilFailure(Communicator& communicator, bool memory_links, uint32_t seed) {
  std::mt19937 random(seed);
  std::array<std::unique_ptr<Slot>, kUnderWay> slots;
  for (int i = 0; i < kUnderWay; ++i) {
    slots[size_t(i)] = std::make_unique<Slot>(communicator, i % 2 == 0);
  }
  int64_t operations = 0;
  absl::Status first;
  while (first.ok()) {
    Slot& slot = *slots[size_t(operations % kUnderWay)];
    if (slot.under_way()) first = slot.Finish();
    if (!first.ok()) break;
    slot.Start(RandomTrial(communicator.size(), memory_links, random));
    if (++operations == kWarmUp) {
      fmt::print("running\n");
      std::fflush(stdout);
    }
  }
  const int64_t when = NowNanos();
  std::string odd;
  for (const auto& slot : slots) {
    const absl::Status status = slot->under_way() ? slot->Finish() : absl::OkStatus();
    if (!status.ok() && status != first) odd = std::string(MessageOf(status));
  }
  return {{"code", absl::StatusCodeToString(first.code())},
          {"message", std::string(MessageOf(first))},
          {"seconds", static_cast<double>(when) * 1e-9},
          {"operations", operations},
          {"odd", odd}};
}

int Run(const std::vector<std::string>& words) {
  if (words.size() != 6) {
    fmt::print(stderr, "usage: collective_rank RANK SIZE FILE TRANSPORT SEED SILENCE_SECONDS\n");
    return 2;
  }
  const std::string& transport = words[3];
  const auto communicator =
      ValueOrThrow(Communicator::Create({.bootstrap = {.rank = std::atoi(words[0].c_str()),
                                                       .size = std::atoi(words[1].c_str()),
                                                       .address = "",
                                                       .file = words[2],
                                                       .endpoints = {},
                                                       .job = "faults"},
                                         .transport = transport,
                                         .silence_seconds = std::atof(words[5].c_str())}));
  const auto seed = static_cast<uint32_t>(std::atoll(words[4].c_str()));
  const bool memory_links = transport != "tcp" && transport != "ucx";
  const nlohmann::json end = RunUntilFailure(*communicator, memory_links, seed);
  fmt::print("{}\n", end.dump());
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace tutti::collective

int main(int argc, char** argv) {
  try {
    return tutti::collective::Run({argv + 1, argv + argc});
  } catch (const tutti::Error& error) {
    fmt::print(stderr, "collective_rank: {}\n", error.what());
    return 1;
  }
}
