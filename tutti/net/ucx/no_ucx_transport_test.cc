#include <gtest/gtest.h>

#include "tutti/net/ucx/ucx_transport.h"

namespace tutti::net {
namespace {

TEST(NoUcxTransportTest, SaysThatTheBuildHasNone) {
  EXPECT_FALSE(UcxTransport::IsBuiltIn());
  const absl::Status status = UcxTransport::Open({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("libucx-dev"), std::string::npos) << status;
}

}  // namespace
}  // namespace tutti::net
