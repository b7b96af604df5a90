// Every transport x ranks x algorithm x operation x dtype x size gives the right numbers, the same
// bits on all ranks. The whole product in a long sweep (TUTTI_SWEEP=long), else a sample of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/operation/rank_program.h"
#include "tutti/net/ucx/ucx_transport.h"
#include "tutti/testing/collective/ranks_under_test.h"
#include "tutti/testing/collective/trial.h"
#include "tutti/testing/sweep.h"

namespace tutti::collective {
namespace {

const std::vector<int64_t> kCounts = {0, 1, 2, 3, 17, 64, 255, 1000, 4099, 20011, 100003};
const std::vector<DType> kReducible = {kFloat16, kBFloat16, kFloat32, kFloat64, kInt32, kInt64};
const std::vector<DType> kMovable = {kFloat32, kInt8, kInt64, kBFloat16, kInt16};

template <typename T>
const T& Any(const std::vector<T>& values, std::mt19937& random) {
  return values[random() % values.size()];
}

// The ranks of one job, with memory for trials up to `most` elements a chunk.
class Job {
 public:
  Job(const std::string& transport, int size, int64_t most)
      : transport_(transport), ranks_(RanksOver(transport, size)) {
    // Counts that vary add up to half a chunk more than one for each rank, at most.
    const size_t bytes = static_cast<size_t>(most) * static_cast<size_t>(size + 1) * 8 + 2 * kShift;
    for (int r = 0; r < ranks_.size(); ++r) {
      for (auto* memory : {&registered_, &registered_outputs_}) {
        memory->push_back(std::move(ranks_[r].Allocate(bytes)).value());
      }
      ordinary_.emplace_back(bytes);
      ordinary_outputs_.emplace_back(bytes);
    }
  }
  int size() const { return ranks_.size(); }
  bool memory_links() const { return transport_ != "tcp" && transport_ != "ucx"; }

  // The ranks' memory of either kind, at an address that vectors like or not.
  void Check(const Trial& trial, bool registered, bool aligned) {
    SCOPED_TRACE(fmt::format("{} over {}, {}{}", Describe(trial, size()), transport_,
                             registered ? "registered" : "ordinary", aligned ? "" : ", unaligned"));
    const size_t shift = aligned ? kShift : kShift + SizeOf(trial.dtype);
    ASSERT_LE(shift + static_cast<size_t>(ElementsOf(trial, size())) * SizeOf(trial.dtype),
              ordinary_[0].size());
    std::vector<std::unique_ptr<TrialPart>> parts(static_cast<size_t>(size()));
    ranks_.Run([&](Communicator& communicator) {
      const auto r = static_cast<size_t>(communicator.rank());
      std::byte* const data = registered ? registered_[r]->bytes().data() : ordinary_[r].data();
      std::byte* const output =
          registered ? registered_outputs_[r]->bytes().data() : ordinary_outputs_[r].data();
      parts[r] = std::make_unique<TrialPart>(trial, communicator.rank(), size(), data + shift,
                                             output + shift);
      parts[r]->Fill();
      const absl::Status status = parts[r]->Start(communicator.world()).Wait();
      ASSERT_TRUE(status.ok()) << Describe(trial, size()) << ": " << status;
      const absl::Status right = parts[r]->Check();
      ASSERT_TRUE(right.ok()) << right;
    });
    for (const auto& part : parts) {
      const size_t bytes = part->result().size();
      if (bytes == 0 || !part->same_everywhere()) continue;
      EXPECT_EQ(std::memcmp(part->result().data(), parts[0]->result().data(), bytes), 0)
          << "a rank has other bits than rank 0";
    }
  }

 private:
  static constexpr size_t kShift = 64;
  const std::string transport_;
  RanksUnderTest ranks_;
  std::vector<std::unique_ptr<net::RegisteredMemory>> registered_, registered_outputs_;
  std::vector<std::vector<std::byte>> ordinary_, ordinary_outputs_;
};

// What the sweep does not go through is drawn.
void CheckDrawn(Job& job, Trial trial, std::mt19937& random) {
  if (trial.dtype == kFloat32 && trial.operation != Operation::kBarrier) {
    trial.wire = static_cast<Wire>(1 + random() % 3);
  }
  if (trial.operation == Operation::kAllGather) trial.varying = random() % 2 == 0;
  trial.root = static_cast<int>(random() % static_cast<uint32_t>(job.size()));
  trial.salt = random() % 1000;
  const bool registered = random() % 2 == 0;
  job.Check(trial, registered, random() % 2 == 0);
}

void CheckAll(Job& job, Trial trial, std::mt19937& random) {
  const bool reduces = IsReduction(trial.operation);
  for (const DType dtype : reduces ? kReducible : kMovable) {
    for (const int64_t count : kCounts) {
      for (int reduction = 1; reduction <= (reduces ? 5 : 1); ++reduction) {
        trial.dtype = dtype;
        trial.count = count;
        trial.reduction = static_cast<Reduction>(reduction);
        CheckDrawn(job, trial, random);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

void CheckSome(Job& job, Trial trial, int64_t most, int samples, std::mt19937& random) {
  const bool reduces = IsReduction(trial.operation);
  for (int i = 0; i < samples && !::testing::Test::HasFailure(); ++i) {
    trial.dtype = Any(reduces ? kReducible : kMovable, random);
    trial.count = std::min(most, Any(kCounts, random));
    trial.reduction = static_cast<Reduction>(reduces ? 1 + random() % 5 : 1);
    CheckDrawn(job, trial, random);
  }
}

std::vector<const char*> Transports() {
  std::vector<const char*> all = {"loopback", "shm", "tcp"};
  if (net::UcxTransport::IsBuiltIn()) all.push_back("ucx");
  return all;
}

class Results : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(Results, EveryAlgorithmAndOperation) {
  const auto [transport, size] = GetParam();
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const bool all = tutti::testing::IsLongSweep();
  const bool quick = transport == std::string("loopback");
  // A chunk for each rank would be too much for a test of every change.
  const int64_t most = all ? kCounts.back() : kCounts.back() / size;
  Job job(transport, size, kCounts.back());
  ASSERT_EQ(job.size(), size);
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.needs_memory_links && !job.memory_links()) continue;
    for (int o = 1; o <= 9; ++o) {
      const Trial trial{.algorithm = std::string(algorithm.name),
                        .operation = static_cast<Operation>(o)};
      if (!algorithm.supports(trial.operation)) continue;
      if (all) {
        CheckAll(job, trial, random);
      } else {
        CheckSome(job, trial, most, tutti::testing::SweepCount(quick ? 3 : 1, 3), random);
      }
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Results,
                         ::testing::Combine(::testing::ValuesIn(Transports()),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

// What the sweep stands on: a trial sees one element that is wrong by little more than rounding.
TEST(Trial, SeesAWrongElement) {
  RanksUnderTest ranks(2);
  ranks.Run([](Communicator& communicator) {
    std::vector<float> data(5000);
    TrialPart part({.count = 5000, .salt = 3}, communicator.rank(), 2,
                   reinterpret_cast<std::byte*>(data.data()), nullptr);
    part.Fill();
    ASSERT_TRUE(part.Start(communicator.world()).Wait().ok());
    ASSERT_TRUE(part.Check().ok()) << part.Check();
    data[4321] += 4e-6f;
    const absl::Status status = part.Check();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(MessageOf(status).find("element 4321 of rank"), std::string_view::npos) << status;
  });
}

TEST(LargeResults, OrdinaryMemoryGoesWindowByWindow) {
  constexpr int64_t kCount = 1'000'003;
  Job job("loopback", 3, kCount / 3 + 1);
  const Trial trial{.algorithm = "direct", .reduction = Reduction::kMean, .count = kCount};
  for (bool registered : {false, true}) job.Check(trial, registered, /*aligned=*/false);
}

}  // namespace
}  // namespace tutti::collective
