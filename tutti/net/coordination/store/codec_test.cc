#include "tutti/net/coordination/store/codec.h"

#include <gtest/gtest.h>

#include <random>

#include "tutti/base/status.h"

namespace tutti::net {
namespace {

TEST(StoreCodec, GivesBackWhatItWrote) {
  const StoreRequest request{
      .op = StoreOp::kPut,
      .key =
          "k\0"
          "ey",
      .value = std::string(1000, 'v'),
      .options = {.lease = -3, .if_version = 0, .guard = {{"place", int64_t{1} << 40}}},
      .seconds = 1.5,
      .from = 7};
  const StoreRequest back = ValueOrThrow(DecodeStoreRequest(Encode(request)));
  EXPECT_EQ(back.op, request.op);
  EXPECT_EQ(back.key, request.key);
  EXPECT_EQ(back.value, request.value);
  EXPECT_EQ(back.options.lease, -3);
  EXPECT_EQ(back.options.if_version, 0);
  EXPECT_EQ(back.options.guard->key, "place");
  EXPECT_EQ(back.options.guard->version, int64_t{1} << 40);
  EXPECT_EQ(back.seconds, 1.5);
  EXPECT_EQ(back.from, 7);
  EXPECT_EQ(ValueOrThrow(DecodeStoreRequest(Encode(StoreRequest{}))).options.if_version,
            std::nullopt);

  const StoreReply reply{.revision = 9,
                         .lease = 4,
                         .events = {{StoreEvent::Kind::kPut, {"a", "1", 1, 2, 3}},
                                    {StoreEvent::Kind::kDelete, {.key = "b", .version = 5}}}};
  const StoreReply answer = ValueOrThrow(DecodeStoreReply(Encode(reply)));
  EXPECT_EQ(answer.revision, 9);
  EXPECT_EQ(answer.lease, 4);
  EXPECT_EQ(answer.events, reply.events);
}

TEST(StoreCodec, RefusesWhatIsCutOffOrChanged) {
  const std::string request = Encode(StoreRequest{.op = StoreOp::kPut, .key = "key"});
  const std::string reply = Encode(StoreReply{.events = {{StoreEvent::Kind::kPut, {"a", "1"}}}});
  for (size_t size = 0; size < request.size(); ++size) {
    EXPECT_FALSE(DecodeStoreRequest(request.substr(0, size)).ok()) << size;
  }
  for (size_t size = 0; size < reply.size(); ++size) {
    EXPECT_FALSE(DecodeStoreReply(reply.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeStoreRequest(request + "x").ok());
  EXPECT_FALSE(DecodeStoreReply(reply + "x").ok());
  // Whatever bits change, it is read or refused.
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string changed = i % 2 == 0 ? request : reply;
    for (int flips = 0; flips < 3; ++flips) {
      changed[random() % changed.size()] ^= char(1 << (random() % 8));
    }
    (void)DecodeStoreRequest(changed);
    (void)DecodeStoreReply(changed);
  }
}

}  // namespace
}  // namespace tutti::net
