#include "tutti/runtime/rendezvous/local_rendezvous.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/node_under_test.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous/rendezvous_table.h"

namespace tutti {
namespace {

using Key = TransferKey;

TEST(LocalRendezvous, MeetsInEitherOrder) {
  LocalRendezvous rendezvous;
  float got = 0;
  const auto take = [&](const absl::Status& status, const Tensor& value) {
    ASSERT_TRUE(status.ok());
    got = value.scalar<float>();
  };
  ASSERT_TRUE(rendezvous.Send(Key("a"), Tensor::Scalar<float>(1)).ok());
  rendezvous.Receive(Key("a"), take);
  EXPECT_EQ(got, 1);
  rendezvous.Receive(Key("b"), take);
  EXPECT_EQ(got, 1);
  ASSERT_TRUE(rendezvous.Send(Key("b"), Tensor::Scalar<float>(2)).ok());
  EXPECT_EQ(got, 2);
  EXPECT_EQ(rendezvous.waiting(), 0u);  // what has met is forgotten
}

TEST(LocalRendezvous, RefusesASecondValueAndASecondReceiver) {
  LocalRendezvous rendezvous;
  ASSERT_TRUE(rendezvous.Send(Key("a"), Tensor::Scalar<float>(1)).ok());
  EXPECT_EQ(MessageOf(rendezvous.Send(Key("a"), Tensor::Scalar<float>(3))),
            "\"a\" was sent twice in one step");
  absl::Status second;
  rendezvous.Receive(Key("b"), [](const absl::Status&, const Tensor&) {});
  rendezvous.Receive(Key("b"), [&](absl::Status status, const Tensor&) { second = status; });
  EXPECT_EQ(MessageOf(second), "\"b\" is received twice in one step");
}

TEST(LocalRendezvous, AbortEndsWaitingAndLaterCalls) {
  LocalRendezvous rendezvous;
  absl::Status waiting, later;
  rendezvous.Receive(Key("a"), [&](absl::Status status, Tensor) { waiting = status; });
  rendezvous.Abort(Cancelled("stop"));
  rendezvous.Receive(Key("b"), [&](absl::Status status, Tensor) { later = status; });
  EXPECT_EQ(MessageOf(waiting), "stop");
  EXPECT_EQ(MessageOf(later), "stop");
  EXPECT_EQ(MessageOf(rendezvous.Send(Key("c"), Tensor::Scalar<float>(1))), "stop");
}

TEST(RendezvousTable, KeepsValuesThatComeBeforeTheirStep) {
  RendezvousTable table;
  const StepId early{7, 1};
  ASSERT_TRUE(table.FindOrMake(early)->Send(Key("a"), Tensor::Scalar<float>(5)).ok());
  float got = 0;
  table.FindOrMake(early)->Receive(
      Key("a"), [&](const absl::Status&, const Tensor& value) { got = value.scalar<float>(); });
  EXPECT_EQ(got, 5);
}

TEST(RendezvousTable, TellsStepsOfSessionsApart) {
  RendezvousTable table;
  const StepId mine{7, 1}, theirs{8, 1};
  ASSERT_TRUE(table.FindOrMake(theirs)->Send(Key("a"), Tensor::Scalar<float>(1)).ok());
  absl::Status ended;
  table.FindOrMake(mine)->Receive(Key("a"),
                                  [&](absl::Status status, const Tensor&) { ended = status; });
  EXPECT_TRUE(ended.ok());  // it waits: what the other session sent is not for it
  table.Remove(mine, Cancelled("over"));
  EXPECT_EQ(MessageOf(ended), "over");
  EXPECT_EQ(table.size(), 1u);
  table.RemoveSession(8, Cancelled("gone"));
  EXPECT_EQ(table.size(), 0u);
}

// A variable whose value is sent lies where other processes can read it.
TEST(SendKernel, AVariableThatIsSentIsReadFromThePool) {
  RegisterRuntimeKernels();
  Graph graph;
  const Output sent = Variable(
      graph,
      {kFloat32, {512}, [](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, {512})); }},
      "sent");
  const Output other = Variable(
      graph,
      {kFloat32, {512}, [](Graph& g) { return Constant(g, Tensor::Zeros(kFloat32, {512})); }},
      "other");
  Device device("/job:ps/task:0/cpu:0", 1);
  std::vector<const void*> lent;
  device.pool().SetSource(
      [&lent](size_t bytes) {
        BufferRef memory = AllocateBuffer(bytes);
        lent.push_back(memory->data());
        return memory;
      },
      1024);
  NodeUnderTest read_sent(device, sent), read_other(device, other);
  for (const char* name : {"sent", "other"}) {
    (*device.variables().FindOrCreate("", name, {kFloat32, {512}}))
        ->Assign(Tensor::Zeros(kFloat32, {512}));
  }
  const Node& send = *OpBuilder("Send", "")
                          .In(sent)
                          .Attr("key", "/job:ps/task:0/cpu:0;/job:worker/task:0/cpu:0;sent")
                          .BuildNode();
  const KernelDef* const def = KernelRegistry::Global().Find("Send", "cpu", KernelDType(send));
  ASSERT_NE(def, nullptr);
  PrepareContext context(send, device, {}, {});
  ASSERT_TRUE(def->make()->Prepare(context).ok());
  ASSERT_TRUE(read_other.Run({}).ok());
  EXPECT_TRUE(lent.empty());
  ASSERT_TRUE(read_sent.Run({}).ok());
  ASSERT_EQ(lent.size(), 1u);
  EXPECT_EQ(read_sent.output().raw(), lent[0]);
}

}  // namespace
}  // namespace tutti
