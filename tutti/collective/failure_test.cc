// Ranks that disagree, mistakes that are seen at once, and ranks that go.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tutti/base/status.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

// Three ranks make one call, rank 2 the other; all must get `message`. Where ranks do not need
// everybody to go on (a broadcast), some may be done before they hear of it: `all` is false.
void ExpectDisagree(const std::function<Handle(Group&, float*)>& call,
                    const std::function<Handle(Group&, float*)>& odd, const std::string& message,
                    bool all = true) {
  RanksUnderTest ranks(4);
  ranks.Run([&](Communicator& communicator) {
    std::vector<float> data(4096, 1);
    const Handle handle =
        (communicator.rank() == 2 ? odd : call)(communicator.world(), data.data());
    absl::Status status = handle.Wait();
    if (!all && communicator.rank() != 2 && status.ok()) {
      status = communicator.world().Barrier().Wait();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(MessageOf(status)), HasSubstr(message));
    // The communicator is of no more use, and says why.
    EXPECT_EQ(communicator.status(), status);
    EXPECT_EQ(communicator.world().Barrier().Wait(), status);
  });
}

TEST(Failure, EveryDifferenceIsTold) {
  const CallOptions named{.key = "grads/b3", .step = 7};
  const auto sum = [&](Group& group, float* data) {
    return group.AllReduce(data, 1000, kFloat32, named);
  };
  for (const char* algorithm : {"", "exchange", "ring", "direct", "tree", "halving-doubling"}) {
    SCOPED_TRACE(algorithm);
    CallOptions same = named;
    same.algorithm = algorithm;
    const auto with = [same](int64_t count, DType dtype) {
      return [=](Group& group, float* data) { return group.AllReduce(data, count, dtype, same); };
    };
    ExpectDisagree(with(1000, kFloat32), with(1001, kFloat32), "gives 1001 float32");
    ExpectDisagree(with(1000, kFloat32), with(0, kFloat32), "gives 0 float32");
    ExpectDisagree(with(1000, kFloat32), with(1000, kInt32), "gives 1000 int32");
  }
  ExpectDisagree(
      sum, [&](Group& group, float* data) { return group.AllReduce(data, 1001, kFloat32, named); },
      "all-reduce \"grads/b3\", step 7: rank");
  ExpectDisagree(
      sum, [&](Group& group, float* data) { return group.Broadcast(data, 1000, kFloat32, named); },
      "rank 2 calls broadcast", false);
  const auto changed = [&](auto change) {
    CallOptions other = named;
    change(other);
    return
        [other](Group& group, float* data) { return group.AllReduce(data, 1000, kFloat32, other); };
  };
  ExpectDisagree(sum, changed([](CallOptions& call) { call.algorithm = "ring"; }),
                 "rank 2 uses algorithm ring");
  ExpectDisagree(changed([](CallOptions& call) { call.algorithm = "ring"; }),
                 changed([](CallOptions& call) { call.algorithm = "tree"; }),
                 "rank 2 uses algorithm tree");
  ExpectDisagree(sum, changed([](CallOptions& call) { call.reduction = Reduction::kMax; }),
                 "rank 2 wants the max");
  ExpectDisagree(sum, changed([](CallOptions& call) { call.wire = Wire::kBFloat16; }),
                 "rank 2 sends bfloat16");
  ExpectDisagree(
      [&](Group& group, float* data) { return group.Broadcast(data, 9, kFloat32, {.root = 0}); },
      [&](Group& group, float* data) { return group.Broadcast(data, 9, kFloat32, {.root = 1}); },
      "rank 2 gives root 1", false);
  const std::vector<int64_t> a = {1, 2, 3, 4}, b = {2, 1, 3, 4};
  ExpectDisagree([&](Group& group, float* data) { return group.AllGatherV(data, a, kFloat32); },
                 [&](Group& group, float* data) { return group.AllGatherV(data, b, kFloat32); },
                 "not the same counts per rank");
}

TEST(Failure, MistakesEndTheHandleAtOnce) {
  RanksUnderTest ranks(2);
  Group& world = ranks[0].world();
  std::vector<float> data(16);
  const auto message = [](const Handle& handle) {
    EXPECT_TRUE(handle.done());
    EXPECT_FALSE(handle.Wait().ok());
    return std::string(MessageOf(handle.Wait()));
  };
  EXPECT_THAT(message(world.AllReduce(nullptr, 4, kFloat32)), HasSubstr("the data is null"));
  EXPECT_THAT(message(world.AllReduce(data.data(), -1, kFloat32)), HasSubstr("count is -1"));
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, kBool)), HasSubstr("cannot reduce bool"));
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, DType::kInvalid)), HasSubstr("dtype"));
  EXPECT_THAT(message(world.AllGather(data.data(), int64_t{1} << 61, kFloat32)), HasSubstr("2^63"));
  EXPECT_THAT(message(world.Broadcast(data.data(), 4, kFloat32, {.root = 2})),
              HasSubstr("root is 2"));
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, kFloat32, {.algorithm = "star"})),
              HasSubstr("no algorithm \"star\""));
  EXPECT_THAT(
      message(world.AllToAll(data.data(), data.data() + 8, 4, kFloat32, {.algorithm = "direct"})),
      HasSubstr("does no all-to-all"));
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, kInt32, {.wire = Wire::kFloat16})),
              HasSubstr("only float32 can travel"));
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, kFloat32, {.algorithm = "central:0"})),
              HasSubstr("1 to 127"));
  for (const int number : {0, 9}) {
    EXPECT_THAT(message(world.AllReduce(data.data(), 4, kFloat32, {.wire = Wire(number)})),
                HasSubstr(fmt::format("no wire format {}", number)));
    EXPECT_THAT(
        message(world.AllReduce(data.data(), 4, kFloat32, {.reduction = Reduction(number)})),
        HasSubstr(fmt::format("no reduction {}", number)));
  }
  EXPECT_THAT(message(world.AllGatherV(data.data(), std::vector<int64_t>{1, 2, 3}, kFloat32)),
              HasSubstr("3 counts for 2 ranks"));
  EXPECT_THAT(message(world.AllToAll(data.data(), data.data() + 4, 4, kFloat32)),
              HasSubstr("of 32 bytes each, overlap by 16"));
  EXPECT_THAT(message(world.AllToAll(nullptr, data.data(), 4, kFloat32)),
              HasSubstr("the input is null"));
  const Handle open = world.AllReduce(data.data(), 4, kFloat32, {.key = "k", .step = 3});
  EXPECT_THAT(message(world.AllReduce(data.data(), 4, kFloat32, {.key = "k", .step = 3})),
              HasSubstr("under way already"));
  EXPECT_TRUE(ranks[0].status().ok());
}

TEST(Failure, OneRankMakesMistakesToo) {
  RanksUnderTest ranks(1);
  float number = 1;
  for (const CallOptions& call :
       {CallOptions{.reduction = Reduction(9)}, CallOptions{.wire = Wire(9)}}) {
    EXPECT_EQ(ranks[0].world().AllReduce(&number, 1, kFloat32, call).Wait().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Failure, AbortingWithoutAReasonIsAMistake) {
  RanksUnderTest ranks(2);
  ranks[1].Abort(absl::OkStatus());
  float number = 1;
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ranks[rank].world().AllReduce(&number, 1, kFloat32).Wait().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(Failure, ARankThatGoesIsNamedByAll) {
  for (const char* algorithm : {"direct", "ring", "exchange", "tree"}) {
    SCOPED_TRACE(algorithm);
    RanksUnderTest ranks(4);
    ranks.Run([&](Communicator& communicator) {
      std::vector<float> data(1000, 1);
      if (communicator.rank() == 2) {
        ranks.Drop(2);
        return;
      }
      const absl::Status status =
          communicator.world()
              .AllReduce(data.data(), 1000, kFloat32, {.algorithm = algorithm})
              .Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("rank 2"));
    });
  }
}

}  // namespace
}  // namespace tutti::collective
