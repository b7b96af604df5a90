#include "tutti/device/device.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tutti/device/layout.h"

namespace tutti {
namespace {

TEST(DeviceName, ParsesWholeAndPartialNames) {
  const auto full = DeviceName::Parse("/job:worker/task:1/cpu:0");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->ToString(), "/job:worker/task:1/cpu:0");
  EXPECT_TRUE(DeviceName::Parse("/cpu:0")->Matches(*full));
  EXPECT_TRUE(DeviceName::Parse("")->Matches(*full));
  EXPECT_FALSE(DeviceName::Parse("/task:2")->Matches(*full));
  EXPECT_TRUE(DeviceName::Parse("cpu:0")->Matches(*full));
  EXPECT_FALSE(DeviceName::Parse("cpu:1")->Matches(*full));
  EXPECT_EQ(MessageOf(DeviceName::Parse("/task:x").status()),
            "device \"/task:x\": \"task:x\" should be a name, a colon and a number or *");
  EXPECT_FALSE(DeviceName::Parse("/cpu:0//task:1").ok());
}

TEST(DeviceName, AStarStandsForAnything) {
  const auto full = DeviceName::Parse("/job:worker/task:1/cpu:3");
  for (const char* text : {"/job:worker/task:*/cpu:3", "/job:*/task:1/cpu:*", "cpu:*", "/task:*"}) {
    EXPECT_TRUE(DeviceName::Parse(text)->Matches(*full)) << text;
  }
  EXPECT_FALSE(DeviceName::Parse("/job:ps/task:*/cpu:*")->Matches(*full));
  EXPECT_FALSE(DeviceName::Parse("gpu:*")->Matches(*full));
  EXPECT_EQ(DeviceName::Parse("/job:*/cpu:*")->ToString(), "/cpu:*");
}

TEST(MemoryPool, ReusesBlocksAndOutlivesItsTensors) {
  Tensor survivor;
  {
    MemoryPool pool;
    const void* first;
    {
      const Tensor t = *pool.Allocate(kFloat32, {1000});
      first = t.raw();
      EXPECT_GE(pool.usage().in_use, 4000);
    }
    EXPECT_EQ(pool.usage().in_use, 0);
    EXPECT_EQ(pool.Allocate(kFloat32, {1001})->raw(), first);
    survivor = *pool.Allocate(kFloat32, {10});
    for (int64_t size : {0, 1, 64, 255, 256, 257, 4096, 100000}) {
      const Tensor t = *pool.Allocate(kUInt8, {size});
      EXPECT_GE(int64_t(t.buffer()->size()), size);
    }
  }
  survivor.values<float>()[9] = 1;
}

TEST(VariableState, CopiesOnlyWhenSomebodyHoldsTheOldValue) {
  VariableState state("w", {kFloat32, {2}});
  EXPECT_EQ(MessageOf(state.Read().status()),
            "variable \"w\" has no value yet; call Session::Initialize() or Assign first");
  state.Assign(Tensor::Of<float>({2}, {1, 2}));
  const void* before = state.Read()->raw();
  const auto add_one = [](Tensor& value) {
    for (float& v : value.values<float>()) v += 1;
    return absl::OkStatus();
  };
  ASSERT_TRUE(state.Modify(add_one).ok());
  EXPECT_EQ(state.Read()->raw(), before);
  const Tensor snapshot = *state.Read();
  ASSERT_TRUE(state.Modify(add_one).ok());
  EXPECT_NE(state.Read()->raw(), before);
  EXPECT_EQ(snapshot.values<float>()[0], 2);
  EXPECT_EQ(state.Read()->values<float>()[0], 3);
}

// A pool whose memory from some size on is told apart.
class SharedPool {
 public:
  static constexpr size_t kLeast = 1024;
  SharedPool() {
    pool.SetSource(
        [this](size_t bytes) {
          BufferRef memory = AllocateBuffer(bytes);
          lent.push_back(memory->data());
          return memory;
        },
        kLeast);
  }

  MemoryPool pool;
  std::vector<const void*> lent;
};

TEST(VariableState, AValueThatIsSentMovesToThePoolOnceAndStaysThere) {
  SharedPool shared;
  const auto cloned = std::make_shared<std::atomic<int64_t>>(0);
  VariableState state("w", {kFloat32, {512}}, cloned);
  state.Assign(Tensor::Zeros(kFloat32, {512}));
  const auto add_one = [](Tensor& value) {
    for (float& v : value.values<float>()) v += 1;
    return absl::OkStatus();
  };
  Tensor sent = *state.ReadToSend(shared.pool);
  ASSERT_EQ(shared.lent.size(), 1u);
  EXPECT_EQ(sent.raw(), shared.lent[0]);
  EXPECT_EQ(state.Read()->raw(), sent.raw());
  EXPECT_EQ(state.ReadToSend(shared.pool)->raw(), sent.raw());
  EXPECT_EQ(*cloned, 0) << "no update copied it";

  // The version that is sent does not change, and its memory is used again when it has arrived.
  ASSERT_TRUE(state.Modify(add_one).ok());
  EXPECT_EQ(*cloned, 2048);
  EXPECT_EQ(sent.values<float>()[0], 0);
  ASSERT_EQ(shared.lent.size(), 2u);
  EXPECT_EQ(state.Read()->raw(), shared.lent[1]);
  sent = *state.ReadToSend(shared.pool);
  ASSERT_TRUE(state.Modify(add_one).ok());
  EXPECT_EQ(state.Read()->raw(), shared.lent[0]);
  sent = Tensor();
  ASSERT_TRUE(state.Modify(add_one).ok());
  EXPECT_EQ(state.Read()->raw(), shared.lent[0]) << "nobody holds it: in place";
  EXPECT_EQ(state.Read()->values<float>()[511], 3);
  EXPECT_EQ(shared.lent.size(), 2u);
}

TEST(VariableState, SmallValuesAndTablesUpdatedByRowsDoNotMove) {
  SharedPool shared;
  VariableState small("bias", {kFloat32, {16}});
  small.Assign(Tensor::Zeros(kFloat32, {16}));
  EXPECT_EQ(small.ReadToSend(shared.pool)->raw(), small.Read()->raw());
  VariableState table("table", {kFloat32, {512, 2}});
  table.Assign(Tensor::Zeros(kFloat32, {512, 2}));
  table.MarkUpdatedByRows();
  EXPECT_EQ(table.ReadToSend(shared.pool)->raw(), table.Read()->raw());
  EXPECT_TRUE(shared.lent.empty());
}

TEST(Layout, CountsPaddedBlocks) {
  EXPECT_EQ(Layout().Bytes(kFloat32, {2, 3, 4, 5}), 480u);
  EXPECT_EQ(Layout("aBcd8b").Bytes(kFloat32, {2, 3, 4, 5}), 2u * 8 * 4 * 5 * 4);
  EXPECT_EQ(Layout("ABcd8b8a").Bytes(kFloat32, {10, 3, 1, 1}), 16u * 8 * 4);
  EXPECT_EQ(Layout().Bytes(kFloat32, {0, int64_t{1} << 62, 4}), 0u);
  EXPECT_EQ(Layout().Bytes(kFloat32, {int64_t{1} << 62}), SIZE_MAX);
  EXPECT_EQ(Layout("Ab4611686018427387904a").Bytes(kFloat32, {3, 3}), SIZE_MAX);
}

}  // namespace
}  // namespace tutti
