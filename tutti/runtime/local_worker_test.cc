// What a worker promises to masters that share it: steps are told apart by session, aborts that
// come too early are kept, and dead steps leave nothing behind.
#include "tutti/runtime/local_worker.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "tutti/base/awaited.h"
#include "tutti/collective/communicator.h"
#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"
#include "tutti/runtime/rendezvous/local_rendezvous.h"

namespace tutti {
namespace {

class LocalWorkerTest : public ::testing::Test {
 protected:
  LocalWorkerTest() : worker_({.devices = 2}) { RegisterCpuKernels(); }

  static Partition Part(std::string_view text, int device = 0) {
    return {.device = "/job:local/task:0/cpu:" + std::to_string(device),
            .program = *ParseProgram(text),
            .feed_index = {},
            .fetch_index = {}};
  }
  uint64_t Register(Partition part) {
    std::vector<Partition> parts;
    parts.push_back(std::move(part));
    Awaited<absl::StatusOr<uint64_t>> handle;
    worker_.Register({.session = 1, .parts = std::move(parts), .options = {}},
                     [&](auto given) { handle.Set(std::move(given)); });
    const auto got = handle.Wait();
    EXPECT_TRUE(got.ok()) << got.status();
    return got.value_or(0);
  }
  RunResponse Run(const StepId& id, uint64_t handle) {
    Awaited<RunResponse> answer;
    worker_.Run({.id = id, .handle = handle, .random_step = 0, .trace = false, .feeds = {}},
                [&](RunResponse&& response) { answer.Set(std::move(response)); });
    return answer.Wait();
  }

  LocalWorker worker_;
};

constexpr std::string_view kReceives =
    "r = Recv() {dtype=float32, key=\"k\", shape=[]}\n"
    "fetch r\n";

TEST_F(LocalWorkerTest, AbortEndsTheStepOfOneSessionOnly) {
  const uint64_t handle = Register(Part(kReceives));
  Awaited<RunResponse> mine, theirs;
  std::thread first([&] {
    worker_.Run({.id = {1, 5}, .handle = handle, .random_step = 0, .trace = false, .feeds = {}},
                [&](RunResponse&& response) { mine.Set(std::move(response)); });
  });
  std::thread second([&] {
    worker_.Run({.id = {2, 5}, .handle = handle, .random_step = 0, .trace = false, .feeds = {}},
                [&](RunResponse&& response) { theirs.Set(std::move(response)); });
  });
  worker_.Abort({1, 5}, Cancelled("enough"));
  EXPECT_EQ(mine.Wait().status, Cancelled("enough"));
  // The other session's step with the same number still waits for its value.
  ASSERT_TRUE(worker_.rendezvous()
                  .FindOrMake({2, 5})
                  ->Send(TransferKey("k"), Tensor::Scalar<float>(3))
                  .ok());
  const RunResponse other = theirs.Wait();
  ASSERT_TRUE(other.status.ok()) << other.status;
  EXPECT_EQ(other.results[0].scalar<float>(), 3);
  first.join();
  second.join();
  worker_.CleanUp({1, 5});
  EXPECT_EQ(worker_.rendezvous().size(), 0u);
}

TEST_F(LocalWorkerTest, KeepsAnAbortThatComesBeforeItsRun) {
  const uint64_t handle = Register(Part(kReceives));
  worker_.Abort({1, 9}, Cancelled("too late"));
  EXPECT_EQ(Run({1, 9}, handle).status, Cancelled("too late"));
  worker_.CleanUp({1, 9});
  // Forgotten: a value for another step of that number arrives.
  ASSERT_TRUE(worker_.rendezvous()
                  .FindOrMake({1, 9})
                  ->Send(TransferKey("k"), Tensor::Scalar<float>(1))
                  .ok());
  EXPECT_TRUE(Run({1, 9}, handle).status.ok());
  EXPECT_EQ(worker_.rendezvous().size(), 0u);
}

TEST_F(LocalWorkerTest, TakesAValueThatArrivesBeforeItsStep) {
  const uint64_t handle = Register(Part(kReceives));
  ASSERT_TRUE(worker_.rendezvous()
                  .FindOrMake({4, 2})
                  ->Send(TransferKey("k"), Tensor::Scalar<float>(8))
                  .ok());
  const RunResponse response = Run({4, 2}, handle);
  ASSERT_TRUE(response.status.ok()) << response.status;
  EXPECT_EQ(response.results[0].scalar<float>(), 8);
}

TEST_F(LocalWorkerTest, RefusesWhatItDoesNotHave) {
  Awaited<absl::StatusOr<uint64_t>> handle;
  std::vector<Partition> parts;
  parts.push_back(Part("n = NoOp()\ntarget n\n", 7));
  worker_.Register({.session = 1, .parts = std::move(parts), .options = {}},
                   [&](auto given) { handle.Set(std::move(given)); });
  EXPECT_EQ(MessageOf(handle.Wait().status()),
            "a part of the step is for device /job:local/task:0/cpu:7, which this task does not "
            "have; its first is /job:local/task:0/cpu:0");
  EXPECT_EQ(MessageOf(Run({1, 1}, 4711).status),
            "step 1 runs a plan that is not registered (handle 4711)");
  const uint64_t fed =
      Register(Part("x = Placeholder() {dtype=float32, shape=[2]}\n"
                    "feed x\nfetch x\n"));
  EXPECT_EQ(Run({1, 2}, fed).status.code(), absl::StatusCode::kInvalidArgument);
}

// What a network thread relies on.
TEST_F(LocalWorkerTest, RunReturnsBeforeItsStepHasEnded) {
  constexpr int kSteps = 50;
  const uint64_t handle = Register(Part(kReceives));
  std::vector<Awaited<RunResponse>> answers(kSteps);
  std::mutex mutex;
  std::set<std::thread::id> answered_on;
  for (int64_t step = 0; step < kSteps; ++step) {
    worker_.Run({.id = {1, step}, .handle = handle, .random_step = 0, .trace = false, .feeds = {}},
                [&, step](RunResponse&& response) {
                  {
                    std::lock_guard lock(mutex);
                    answered_on.insert(std::this_thread::get_id());
                  }
                  answers[size_t(step)].Set(std::move(response));
                });
  }
  for (int64_t step = kSteps - 1; step >= 0; --step) {
    ASSERT_TRUE(worker_.rendezvous()
                    .FindOrMake({1, step})
                    ->Send(TransferKey("k"), Tensor::Scalar(float(step)))
                    .ok());
  }
  for (int step = 0; step < kSteps; ++step) {
    const RunResponse response = answers[size_t(step)].Wait();
    ASSERT_TRUE(response.status.ok()) << response.status;
    EXPECT_EQ(response.results[0].scalar<float>(), float(step));
  }
  EXPECT_EQ(answered_on.size(), 1u) << "all steps share the lane of their device";
  EXPECT_FALSE(answered_on.contains(std::this_thread::get_id()));
}

TEST_F(LocalWorkerTest, ACallerThatWaitsRunsAStepOfOnePartItself) {
  const uint64_t handle = Register(Part("c = Constant() {value=float32 [] {4}}\nfetch c\n"));
  bool answered = false;
  worker_.Run({.id = {1, 1}, .handle = handle, .caller_waits = true},
              [&, caller = std::this_thread::get_id()](RunResponse&& response) {
                EXPECT_TRUE(response.status.ok()) << response.status;
                EXPECT_EQ(std::this_thread::get_id(), caller);
                answered = true;
              });
  EXPECT_TRUE(answered);
}

// The callback holds the worker, as a server's connection may.
TEST_F(LocalWorkerTest, TheLastAnswerMayDestroyTheWorker) {
  auto worker = std::make_shared<LocalWorker>(LocalWorkerOptions{});
  std::vector<Partition> parts;
  parts.push_back(Part("c = Constant() {value=float32 [] {4}}\nfetch c\n"));
  Awaited<absl::StatusOr<uint64_t>> handle;
  worker->Register({.session = 1, .parts = std::move(parts), .options = {}},
                   [&](auto given) { handle.Set(std::move(given)); });
  LocalWorker& reference = *worker;
  const std::weak_ptr<LocalWorker> watched = worker;
  std::promise<bool> answered;
  reference.Run({.id = {1, 1}, .handle = *handle.Wait()},
                [&answered, owner = std::move(worker)](RunResponse&& response) mutable {
                  owner.reset();
                  answered.set_value(response.status.ok());
                });
  EXPECT_TRUE(answered.get_future().get());
  EXPECT_TRUE(watched.expired());
}

// Steps with collectives run one after the other, on lanes too, while others pass them.
TEST_F(LocalWorkerTest, LanesRunCollectives) {
  constexpr int kRanks = 2, kSteps = 20;
  auto communicators = ValueOrThrow(collective::Communicator::CreateInProcess(kRanks));
  std::vector<std::unique_ptr<LocalWorker>> workers;
  std::vector<std::vector<uint64_t>> handles(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    workers.push_back(std::make_unique<LocalWorker>(
        LocalWorkerOptions{.communicator = std::move(communicators[size_t(r)])}));
    for (const std::string& text :
         {"c = Constant() {value=float32 [2] {" + std::to_string(r + 1) +
              ", 10}}\nn = Neg(c)\ns = AllReduce(n) {key=\"sum\"}\nfetch s\n",
          std::string("c = Constant() {value=float32 [2] {5, 6}}\nn = Neg(c)\nfetch n\n")}) {
      std::vector<Partition> parts;
      parts.push_back(Part(text));
      Awaited<absl::StatusOr<uint64_t>> handle;
      workers.back()->Register(
          {.session = 1, .parts = std::move(parts), .options = {.optimize = false}},
          [&](auto given) { handle.Set(std::move(given)); });
      handles[size_t(r)].push_back(ValueOrThrow(handle.Wait()));
    }
  }
  std::vector<Awaited<RunResponse>> answers(kRanks * kSteps * 2);
  size_t next = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int r = 0; r < kRanks; ++r) {
      for (int kind = 0; kind < 2; ++kind) {
        workers[size_t(r)]->Run(
            {.id = {1, 2 * step + kind}, .handle = handles[size_t(r)][size_t(kind)]},
            [&answer = answers[next++]](RunResponse&& response) {
              answer.Set(std::move(response));
            });
      }
    }
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const RunResponse response = answers[i].Wait();
    ASSERT_TRUE(response.status.ok()) << response.status;
    EXPECT_EQ(response.results[0].ToString(),
              i % 2 == 0 ? "float32 [2] {-3, -20}" : "float32 [2] {-5, -6}");
  }
}

// A rendezvous of another kind: it hands values over on threads of its own.
class ThreadedRendezvous final : public Rendezvous {
 public:
  ~ThreadedRendezvous() override {
    for (std::thread& thread : threads_) thread.join();
  }
  absl::Status Send(const TransferKey& key, Tensor value) override {
    std::lock_guard lock(mutex_);
    threads_.emplace_back([this, key, value = std::move(value)] { (void)inner_.Send(key, value); });
    return absl::OkStatus();
  }
  void Receive(const TransferKey& key, Receiver receiver) override {
    inner_.Receive(key, std::move(receiver));
  }
  void Abort(absl::Status reason) override { inner_.Abort(std::move(reason)); }

 private:
  LocalRendezvous inner_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

TEST_F(LocalWorkerTest, RunsOverAnotherKindOfRendezvous) {
  int made = 0;
  LocalWorker worker({.devices = 2, .make_rendezvous = [&](const StepId&) {
                        ++made;
                        return std::make_shared<ThreadedRendezvous>();
                      }});
  std::vector<Partition> parts;
  parts.push_back(Part(kReceives, 0));
  parts.push_back(
      Part("c = Constant() {value=float32 [] {4}}\n"
           "s = Send(c) {key=\"k\"}\ntarget s\n",
           1));
  Awaited<absl::StatusOr<uint64_t>> handle;
  worker.Register({.session = 1, .parts = std::move(parts), .options = {.optimize = false}},
                  [&](auto given) { handle.Set(std::move(given)); });
  const auto registered = handle.Wait();
  ASSERT_TRUE(registered.ok()) << registered.status();
  for (int64_t step = 0; step < 20; ++step) {
    Awaited<RunResponse> answer;
    worker.Run(
        {.id = {1, step}, .handle = *registered, .random_step = 0, .trace = false, .feeds = {}},
        [&](RunResponse&& response) { answer.Set(std::move(response)); });
    const RunResponse response = answer.Wait();
    ASSERT_TRUE(response.status.ok()) << response.status;
    EXPECT_EQ(response.results[0].scalar<float>(), 4);
  }
  EXPECT_EQ(made, 20);
}

}  // namespace
}  // namespace tutti
