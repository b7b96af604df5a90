// What a message between two ranks of one host costs: two processes, ping-pong.
//
//   build/bin/memory_bench
//
// prints one JSON object a line: the time of a message one way, and the bandwidth of large ones,
// from ordinary and from registered memory. Beside them, as the machine's own limit, "line": a word
// that goes from one core's cache to the other's. `value` is the median of the runs, `best` the
// best.
#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/shm/shm_transport.h"

namespace {

using tutti::NowNanos;
using tutti::net::Bytes;
using tutti::net::MemoryKey;
using tutti::net::Request;
using tutti::net::ShmEndpoint;
using tutti::net::ShmTransport;
using tutti::net::Transport;

constexpr int kRuns = 40;
constexpr int kLargeRuns = 10;  // of what takes milliseconds

struct Times {
  double median;
  double best;
};

Times TimesOf(std::vector<double> times) {
  std::ranges::sort(times);
  return {.median = times[times.size() / 2], .best = times.front()};
}

void Print(const std::string& name, double value, double best, int digits, const char* unit) {
  fmt::print(
      "{{\"bench\": \"memory\", \"case\": \"{}\", \"value\": {:.{}f}, \"best\": {:.{}f}, "
      "\"unit\": \"{}\"}}\n",
      name, value, digits, best, digits, unit);
  std::fflush(stdout);  // a line as soon as it is known
}

struct Flag final : Request {
  void Done(const absl::Status& status) override {
    tutti::ThrowIfError(status);
    done = true;
  }
  bool done = false;
};

void WaitFor(Transport& transport, const Flag& flag) {
  while (!flag.done) {
    if (!transport.Progress()) transport.Wait(1'000'000'000);
  }
}

// One message there and one back, `rounds` times a run.
Times Play(Transport& transport, Bytes data, int rounds, uint64_t* operation) {
  const int peer = 1 - transport.rank();
  std::vector<double> times;
  const int runs = data.size() < (1 << 20) ? kRuns : kLargeRuns;
  for (int run = 0; run < runs; ++run) {
    const int64_t start = NowNanos();
    for (int round = 0; round < rounds; ++round) {
      Flag send;
      Flag receive;
      const uint64_t ping = ++*operation;
      const bool first = transport.rank() == 0;
      if (first) transport.Send(peer, {ping, 0}, data, &send);
      transport.Receive(peer, {ping, 0}, data.data(), data.size(), &receive);
      WaitFor(transport, receive);
      if (!first) transport.Send(peer, {ping, 0}, data, &send);
      WaitFor(transport, send);
    }
    times.push_back(static_cast<double>(NowNanos() - start) / rounds / 2);
  }
  return TimesOf(std::move(times));
}

// Short messages, there and back.
Times PlayShort(Transport& transport, int rounds) {
  const int peer = 1 - transport.rank();
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    const int64_t start = NowNanos();
    for (int round = 0; round < rounds; ++round) {
      Transport::ShortMessage message;
      if (transport.rank() == 0) tutti::ThrowIfError(transport.SendShort(peer, {1, 1}, {}));
      while (!transport.NextShort(&message)) {
        if (!transport.Progress()) transport.Wait(1'000'000'000);
      }
      if (transport.rank() == 1) tutti::ThrowIfError(transport.SendShort(peer, {1, 1}, {}));
    }
    times.push_back(static_cast<double>(NowNanos() - start) / rounds / 2);
  }
  return TimesOf(std::move(times));
}

// A word in rank 0's memory, one in rank 1's; each watches its own.
Times PlayLine(Transport& transport, int rounds) {
  const int peer = 1 - transport.rank();
  auto memory = tutti::ValueOrThrow(transport.Allocate(64));
  const MemoryKey own_key = memory->key();
  tutti::ThrowIfError(transport.SendShort(peer, {0, 0}, std::as_bytes(std::span(&own_key, 1))));
  Transport::ShortMessage message;
  while (!transport.NextShort(&message)) transport.Progress();
  MemoryKey key;
  std::memcpy(&key, message.data, sizeof(key));
  std::byte* mapped = tutti::ValueOrThrow(transport.Map(peer, key, 64));
  std::atomic_ref<uint64_t> mine(*reinterpret_cast<uint64_t*>(memory->bytes().data()));
  std::atomic_ref<uint64_t> theirs(*reinterpret_cast<uint64_t*>(mapped));
  std::vector<double> times;
  uint64_t count = 0;
  for (int run = 0; run < kRuns; ++run) {
    const int64_t start = NowNanos();
    for (int round = 0; round < rounds; ++round) {
      ++count;
      if (transport.rank() == 0) theirs.store(count, std::memory_order_release);
      while (mine.load(std::memory_order_acquire) != count) {
      }
      if (transport.rank() == 1) theirs.store(count, std::memory_order_release);
    }
    times.push_back(static_cast<double>(NowNanos() - start) / rounds / 2);
  }
  return TimesOf(std::move(times));
}

void Run(Transport& transport) {
  const bool prints = transport.rank() == 0;
  uint64_t operation = 0;
  const Times line = PlayLine(transport, 5'000);
  if (prints) Print("line", line.median, line.best, 0, "ns");
  const Times times = PlayShort(transport, 5'000);
  if (prints) Print("short", times.median, times.best, 0, "ns");
  constexpr size_t kLargest = 64 << 20;
  auto registered = tutti::ValueOrThrow(transport.Allocate(kLargest));
  std::vector<std::byte> ordinary(kLargest);
  for (bool use_registered : {false, true}) {
    const Bytes memory = use_registered ? registered->bytes() : Bytes(ordinary);
    for (size_t size :
         {4u, 40u, 256u, 1024u, 8192u, 16384u, 65536u, 1u << 20, 4u << 20, 64u << 20}) {
      const int rounds = static_cast<int>(std::clamp<size_t>((8 << 20) / size, 1, 2'000));
      const Times time = Play(transport, memory.first(size), rounds, &operation);
      if (!prints) continue;
      const std::string name =
          fmt::format("{} {}", use_registered ? "registered" : "ordinary", size);
      const double bytes = static_cast<double>(size);
      if (size < 16384) {
        Print(name, time.median, time.best, 0, "ns");
      } else {
        Print(name, bytes / time.median, bytes / time.best, 2, "GB/s");
      }
    }
  }
}

}  // namespace

int main() {
  try {
    std::vector<std::unique_ptr<ShmEndpoint>> endpoints;
    tutti::net::ShmOptions options{.size = 2};
    for (int rank = 0; rank < 2; ++rank) {
      endpoints.push_back(tutti::ValueOrThrow(ShmEndpoint::Open()));
      options.names.push_back(endpoints.back()->name());
    }
    const pid_t child = fork();
    options.rank = child == 0 ? 1 : 0;
    auto transport = tutti::ValueOrThrow(
        ShmTransport::Connect(std::move(endpoints[static_cast<size_t>(options.rank)]), options));
    endpoints.clear();
    Run(*transport);
    if (child == 0) _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
