#include "tutti/runtime/rendezvous.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Rendezvous, MeetsInEitherOrder) {
  Rendezvous rendezvous;
  float got = 0;
  const auto take = [&](const absl::Status& status, const Tensor& value) {
    ASSERT_TRUE(status.ok());
    got = value.scalar<float>();
  };
  ASSERT_TRUE(rendezvous.Send("a", Tensor::Scalar<float>(1)).ok());
  rendezvous.Receive("a", take);
  EXPECT_EQ(got, 1);
  rendezvous.Receive("b", take);
  EXPECT_EQ(got, 1);
  ASSERT_TRUE(rendezvous.Send("b", Tensor::Scalar<float>(2)).ok());
  EXPECT_EQ(got, 2);
  EXPECT_EQ(MessageOf(rendezvous.Send("b", Tensor::Scalar<float>(3))),
            "\"b\" was sent twice in one step");
}

TEST(Rendezvous, AbortEndsWaitingAndLaterCalls) {
  Rendezvous rendezvous;
  absl::Status waiting, later;
  rendezvous.Receive("a", [&](absl::Status status, Tensor) { waiting = status; });
  rendezvous.Abort(Cancelled("stop"));
  rendezvous.Receive("b", [&](absl::Status status, Tensor) { later = status; });
  EXPECT_EQ(MessageOf(waiting), "stop");
  EXPECT_EQ(MessageOf(later), "stop");
  EXPECT_EQ(MessageOf(rendezvous.Send("c", Tensor::Scalar<float>(1))), "stop");
}

}  // namespace
}  // namespace tutti
