#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

class GatherInPlaceTest : public ::testing::Test {
 protected:
  GatherInPlaceTest() { RegisterCpuKernels(); }
};

TEST_F(GatherInPlaceTest, RowsAreReadWhereTheVariableLives) {
  EXPECT_EQ(TextAfter(GatherInPlace, R"(
v = Variable() {dtype=float32, shape=[9, 2]}
i = Placeholder() {dtype=int64, shape=[3]}
r = Placeholder() {dtype=float32, shape=[3, 2]}
g = Gather(v, i) {axis=0}
u = ScatterAdd(v, i, r)
feed i, r
fetch g
target u
)"),
            "v = Variable() {dtype=float32, shape=[9, 2]}\n"
            "i = Placeholder() {dtype=int64, shape=[3]}\n"
            "r = Placeholder() {dtype=float32, shape=[3, 2]}\n"
            "g = _GatherRows(v, i) {axis=0}\n"
            "u = ScatterAdd(v, i, r)\n"
            "feed i\n"
            "feed r\n"
            "fetch g\n"
            "target u\n");
}

// What was built after an update still sees the value from before it; columns and values that are
// no variables are gathered as ever.
TEST_F(GatherInPlaceTest, LeavesOthersAlone) {
  const char* const text =
      "v = Variable() {dtype=float32, shape=[9, 2]}\n"
      "i = Placeholder() {dtype=int64, shape=[3]}\n"
      "r = Placeholder() {dtype=float32, shape=[3, 2]}\n"
      "u = ScatterAdd(v, i, r)\n"
      "g = Gather(v, i) {axis=0}\n"
      "c = Gather(r, i) {axis=0}\n"
      "w = Variable() {dtype=float32, shape=[9, 2]}\n"
      "d = Gather(w, i) {axis=1}\n"
      "feed i\n"
      "feed r\n"
      "fetch g\n"
      "fetch c\n"
      "fetch d\n"
      "target u\n";
  EXPECT_EQ(TextAfter(GatherInPlace, text), text);
}

}  // namespace
}  // namespace tutti
