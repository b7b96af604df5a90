// Every worker has a queue on the first server that only it takes from. A Gather sends one letter
// to worker 0 and one back; worker 0 is the only one that hears from several, so letters name their
// sender. A letter of failure goes to a second queue of each worker, whose taker never does
// anything else: it is heard while the worker waits, computes, or is inside a step.
#include "tutti/train/strategies/ps/queue_peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <system_error>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/train/reporting/packed_text.h"
#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {

struct QueuePeers::Letter {
  int64_t from = 0;
  std::string what;
  std::string text;
};

// The same in the graphs of all workers.
struct QueuePeers::Nodes {
  Output from, what, text;  // what is sent
  std::vector<const Node*> send, tell_failure;
  std::vector<std::vector<Output>> receive, hear_failure;

  Nodes(Graph& graph, const std::string& device, int workers) {
    const DeviceScope on(graph, device);
    NameScope scope(graph, "peers");
    from = Placeholder(graph, kInt64, Shape{}, "from");
    what = Placeholder(graph, kUInt8, Shape{kUnknownDim}, "what");
    text = Placeholder(graph, kUInt8, Shape{kUnknownDim}, "text");
    const QueueComponents letter = {
        {kInt64, Shape{}}, {kUInt8, Shape{kUnknownDim}}, {kUInt8, Shape{kUnknownDim}}};
    const std::vector<Output> contents = {from, what, text};
    for (int r = 0; r < workers; ++r) {
      const Output letters = FIFOQueue(graph, letter, {.capacity = 2 * int64_t(workers)},
                                       fmt::format("letters_{}", r));
      const Output failures = FIFOQueue(graph, letter, {.capacity = 2 * int64_t(workers)},
                                        fmt::format("failures_{}", r));
      send.push_back(Enqueue(letters, contents));
      receive.push_back(Dequeue(letters));
      tell_failure.push_back(Enqueue(failures, contents));
      hear_failure.push_back(Dequeue(failures));
    }
  }
};

namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);

Tensor BytesOf(std::string_view text) {
  Tensor bytes(kUInt8, Shape{int64_t(text.size())});
  if (!text.empty()) std::memcpy(bytes.raw(), text.data(), text.size());
  return bytes;
}

std::string TextOf(const Tensor& bytes) {
  return std::string(static_cast<const char*>(bytes.raw()), bytes.bytes());
}

}  // namespace

QueuePeers::QueuePeers(const ParameterServers& servers)
    : workers_(servers.workers),
      rank_(servers.rank),
      start_timeout_(servers.start_timeout),
      nodes_(std::make_unique<Nodes>(graph_, servers.devices.front(), servers.workers)),
      look_(servers.look) {
  SessionOptions options;
  servers.connect(options);
  session_.emplace(graph_, options);
  if (workers_ == 1) return;
  try {
    watch_ = std::thread([this] { WatchFailures(); });
    if (look_) look_thread_ = std::thread([this] { WatchWorkers(closing_.get_token()); });
  } catch (const std::system_error& error) {
    closing_.request_stop();
    if (watch_.joinable()) watch_.join();
    ThrowIfError(CannotStartThread("the thread that waits for failures of other workers",
                                   error.code().message()));
  }
}

QueuePeers::~QueuePeers() {
  closing_.request_stop();
  if (watch_.joinable()) watch_.join();
  if (look_thread_.joinable()) look_thread_.join();
}

void QueuePeers::SetFailure(Code code, std::string_view text) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) {
      failure_code_ = code;
      failure_ = text;
    }
  }
  aborted_.request_stop();
}

// A worker that was there once and is not any more, or is another process, is lost.
void QueuePeers::WatchWorkers(const std::stop_token& stop) {
  std::vector<uint64_t> incarnations(size_t(workers_), 0);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  while (!stop.stop_requested() && !aborted_.stop_requested()) {
    for (const WorkerState& worker : look_()) {
      if (stop.stop_requested()) return;
      uint64_t& known = incarnations[size_t(worker.rank)];
      if (worker.rank == rank_) continue;
      if (worker.error.empty() && known == 0) known = worker.incarnation;
      if (known == 0 || (worker.error.empty() && worker.incarnation == known)) continue;
      return SetFailure(Code::kUnavailable,
                        fmt::format("worker {} ({}) is lost: {}", worker.rank, worker.task,
                                    worker.error.empty() ? "it was started anew" : worker.error));
    }
    never.wait_for(lock, stop, kLookEvery, [] { return false; });
  }
}

void QueuePeers::WatchFailures() {
  try {
    const auto letter = session_->Run(std::span<const Feed>(), nodes_->hear_failure[size_t(rank_)],
                                      {}, {.stop = closing_.get_token()});
    SetFailure(static_cast<Code>(letter[0].scalar<int64_t>()), TextOf(letter[2]));
  } catch (const Error& error) {
    if (!closing_.stop_requested()) SetFailure(error.code(), error.what());
  }
}

std::string QueuePeers::Failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void QueuePeers::Rethrow(const Error& error) const {
  const std::lock_guard lock(mutex_);
  if (error.code() == Code::kCancelled && !failure_.empty()) throw Error(failure_code_, failure_);
  throw error;
}

std::vector<Tensor> QueuePeers::Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                                    const Node* target) {
  const std::chrono::duration<double> timeout(start_timeout_);
  try {
    return session_->Run(feeds, fetches,
                         target == nullptr ? std::span<const Node* const>() : std::span(&target, 1),
                         {.timeout = std::chrono::duration_cast<std::chrono::nanoseconds>(timeout),
                          .stop = aborted()});
  } catch (const Error& error) {
    Rethrow(error);
  }
}

void QueuePeers::Send(int to, const Letter& letter) {
  const std::vector<Feed> feeds = {{nodes_->from, Tensor::Scalar<int64_t>(letter.from)},
                                   {nodes_->what, BytesOf(letter.what)},
                                   {nodes_->text, BytesOf(letter.text)}};
  Run(feeds, {}, nodes_->send[size_t(to)]);
}

QueuePeers::Letter QueuePeers::Receive(int from_queue) {
  const std::vector<Tensor> parts = Run({}, nodes_->receive[size_t(from_queue)], nullptr);
  return {parts[0].scalar<int64_t>(), TextOf(parts[1]), TextOf(parts[2])};
}

// Worker 0 hears from everybody.
std::vector<std::string> QueuePeers::Collect(std::string_view what, std::string_view own) {
  std::vector<std::string> texts(static_cast<size_t>(workers_));
  std::vector<bool> heard(size_t(workers_), false);
  texts[0] = own;
  heard[0] = true;
  for (int count = 1; count < workers_; ++count) {
    Letter letter;
    try {
      letter = Receive(0);
    } catch (const Error& error) {
      if (error.code() != Code::kDeadlineExceeded) throw;
      std::string missing;
      for (int r = 0; r < workers_; ++r) {
        if (!heard[size_t(r)]) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", r);
      }
      throw Error(Code::kDeadlineExceeded,
                  fmt::format("{}: worker {} of {} did not appear within {} s; was it started? "
                              "--start-timeout sets how long to wait",
                              what, missing, workers_, start_timeout_));
    }
    if (letter.from < 1 || letter.from >= workers_) {
      ThrowInvalidArgument(fmt::format(
          "{}: a letter came from worker {}; expected 1 to {}: has every worker the same cluster?",
          what, letter.from, workers_ - 1));
    }
    if (letter.what != what) {
      ThrowInvalidArgument(
          fmt::format("worker {} is at \"{}\", worker 0 at \"{}\"; every worker must make the same "
                      "calls in the same order",
                      letter.from, letter.what, what));
    }
    texts[size_t(letter.from)] = std::move(letter.text);
    heard[size_t(letter.from)] = true;
  }
  return texts;
}

std::vector<std::string> QueuePeers::Gather(std::string_view what, std::string_view own) {
  if (workers_ == 1) return {std::string(own)};
  std::vector<std::string> texts;
  if (rank_ == 0) {
    texts = Collect(what, own);
    std::string all;
    for (const std::string& text : texts) all += fmt::format("{} {}", text.size(), text);
    for (int r = 1; r < workers_; ++r) Send(r, {0, std::string(what), all});
  } else {
    Send(0, {rank_, std::string(what), std::string(own)});
    const std::string all = Receive(rank_).text;
    for (size_t at = 0; at < all.size();) {
      const size_t space = all.find(' ', at);
      const size_t size = std::stoul(all.substr(at, space - at));
      texts.push_back(all.substr(space + 1, size));
      at = space + 1 + size;
    }
  }
  start_timeout_ = 0;
  return texts;
}

void QueuePeers::Sum(std::string_view what, std::span<double> values) {
  const std::string_view own(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = Gather(what, own);
  std::fill(values.begin(), values.end(), 0.0);
  for (const std::string& text : all) {
    for (size_t i = 0; i < values.size() && (i + 1) * sizeof(double) <= text.size(); ++i) {
      double value;
      std::memcpy(&value, text.data() + i * sizeof(double), sizeof(double));
      values[i] += value;
    }
  }
}

void QueuePeers::Abort(Code code, std::string_view message) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_code_ = code;
    failure_ = message;
  }
  const std::vector<Feed> feeds = {{nodes_->from, Tensor::Scalar<int64_t>(int64_t(code))},
                                   {nodes_->what, BytesOf("failure")},
                                   {nodes_->text, BytesOf(message)}};
  for (int r = 0; r < workers_; ++r) {
    if (r == rank_) continue;
    try {
      // A worker that is gone no longer takes its letters; nobody waits for that.
      session_->Run(feeds, {}, std::span(&nodes_->tell_failure[size_t(r)], 1),
                    {.timeout = std::chrono::seconds(1)});
    } catch (const Error&) {
      // The servers may be what has failed.
    }
  }
  aborted_.request_stop();
}

}  // namespace tutti
