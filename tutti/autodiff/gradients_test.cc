#include "tutti/autodiff/gradients.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

TEST(Gradients, RefusesIntegersAndForeignGraphs) {
  Graph graph;
  const Output i = Placeholder(graph, kInt32, {2}, "i");
  try {
    Gradients(i, {i});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"i\""), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("is int32; only floating-point values have gradients"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tutti
