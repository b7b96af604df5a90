// Collectives that stand only in the bodies of If and While.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/collective/communicator.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using Outputs = std::vector<Output>;
using Variables = std::span<const Output>;

constexpr int kRanks = 2;

// Builds `make(p, x)` on two ranks, rank r feeds x = r + 1, and both must fetch `expected`.
void ExpectOnAllRanks(const std::function<Output(Output p, Output x)>& make, bool p,
                      float expected) {
  RegisterCpuKernels();
  for (const bool optimize : {true, false}) {
    auto communicators = ValueOrThrow(collective::Communicator::CreateInProcess(kRanks));
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        const std::shared_ptr<collective::Communicator> own = std::move(communicators[size_t(r)]);
        try {
          Graph graph;
          const Output condition = Placeholder(graph, kBool, {}, "p");
          const Output x = Placeholder(graph, kFloat32, {3}, "x");
          const Output y = make(condition, x);
          Session session(graph,
                          {.cores_per_device = 1, .communicator = own, .optimize = optimize});
          const float v = float(r + 1);
          for (int step = 0; step < 3; ++step) {
            const Tensor result = session.Run(
                {{condition, Tensor::Scalar(p)}, {x, Tensor::Vector<float>({v, v, v})}}, y);
            EXPECT_EQ(result.data<float>()[2], expected) << "optimize " << optimize;
          }
        } catch (const Error& error) {
          ADD_FAILURE() << "rank " << r << ", optimize " << optimize << ": " << error.what();
          own->Abort(Aborted("rank {} failed", r));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

Output SumInIf(Output p, Output x) {
  return If(
      p, [&] { return Outputs{Neg(AllReduce(Mul(x, 10.0f), {.key = "sum"}))}; },
      [&] { return Outputs{Add(x, 0.0f)}; })[0];
}

TEST(NestedCollectives, AllReduceInABranchOfIf) { ExpectOnAllRanks(SumInIf, true, -30); }

// Each iteration sums the sums: 3, 6, 12 for one of two ranks.
TEST(NestedCollectives, AllReduceInTheBodyOfWhile) {
  ExpectOnAllRanks(
      [](Output, Output x) {
        return While(
            {Constant(x.graph(), Tensor::Scalar<int64_t>(0)), x},
            [](Variables v) { return Less(v[0], 3); },
            [](Variables v) {
              return Outputs{Add(v[0], 1), AllReduce(Mul(v[1], 1.0f), {.key = "sum"})};
            })[1];
      },
      true, 12);
}

TEST(NestedCollectives, AllReduceInAnIfInAWhile) {
  ExpectOnAllRanks(
      [](Output p, Output x) {
        return While(
            {Constant(x.graph(), Tensor::Scalar<int64_t>(0)), x},
            [](Variables v) { return Less(v[0], 2); },
            [&](Variables v) {
              return Outputs{Add(v[0], 1), SumInIf(p, v[1])};
            })[1];
      },
      true, 600);
}

}  // namespace
}  // namespace tutti
